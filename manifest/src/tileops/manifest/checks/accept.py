"""A quick yes or no to a document, by its JSON Schema.

Every entry that is loaded is checked against the whole schema, and nearly all are right. This
answers that in a fraction of a millisecond and without jsonschema, which is asked only for what is
wrong with the others. It knows the keywords that our schemas use, and refuses to compile others, so
that a schema cannot come to say more than is checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["compile_schema", "inlined", "is_int", "is_number"]

Accepts = Callable[[Any], bool]

_ANNOTATIONS: Final = frozenset({"$schema", "$comment", "title", "description", "examples"})


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with every ``$ref`` replaced by what it names.

    No definition refers to itself, and without references both validators are twice as quick. Keys
    beside a ``$ref`` (a description) go over those of its target.
    """
    definitions = schema.get("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        own = {key: resolve(value) for key, value in node.items() if key != "$ref"}
        if "$ref" not in node:
            return own
        return {**resolve(definitions[node["$ref"].removeprefix("#/$defs/")]), **own}

    found: dict[str, Any] = resolve({key: v for key, v in schema.items() if key != "$defs"})
    return found


def is_int(value: object) -> bool:
    """Whether a value is an int of 64 bits: TOML, unlike JSON, knows 1.0 for a float."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def is_number(value: object) -> bool:
    """Whether a value is an int of 64 bits or a finite float: JSON, unlike TOML, has no others."""
    return is_int(value) or (isinstance(value, float) and math.isfinite(value))


def compile_schema(schema: Mapping[str, Any]) -> Accepts:
    """Return a function that says whether a document is valid by a schema without references.

    :raises NotImplementedError: the schema has a keyword that is not known here.
    """
    checks: list[Accepts] = []
    for keyword, value in schema.items():
        if keyword in _ANNOTATIONS or keyword == "unevaluatedProperties":
            continue
        if keyword not in _KEYWORDS:
            raise NotImplementedError(f"the keyword {keyword!r}")
        checks.append(_KEYWORDS[keyword](value))
    if "unevaluatedProperties" in schema:
        known = schema["properties"].keys()
        checks.append(lambda v: not isinstance(v, dict) or v.keys() <= known)
    return lambda value: all(check(value) for check in checks)


_TYPES: Final[Mapping[str, Accepts]] = {
    "string": lambda v: isinstance(v, str),
    "integer": is_int,
    "number": is_number,
    "boolean": lambda v: isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


def _type(names: str | list[str]) -> Accepts:
    if isinstance(names, str):
        return _TYPES[names]
    types = [_TYPES[name] for name in names]
    return lambda v: any(is_type(v) for is_type in types)


def _properties(schemas: Mapping[str, Any]) -> Accepts:
    checks = {name: compile_schema(schema) for name, schema in schemas.items()}
    return lambda v: (
        not isinstance(v, dict)
        or all(checks[key](item) for key, item in v.items() if key in checks)
    )


def _additional(schema: Mapping[str, Any]) -> Accepts:
    check = compile_schema(schema)
    return lambda v: not isinstance(v, dict) or all(check(item) for item in v.values())


def _names(schema: Mapping[str, Any]) -> Accepts:
    check = compile_schema(schema)
    return lambda v: not isinstance(v, dict) or all(check(key) for key in v)


def _items(schema: Mapping[str, Any]) -> Accepts:
    check = compile_schema(schema)
    return lambda v: not isinstance(v, list) or all(check(item) for item in v)


def _pattern(pattern: str) -> Accepts:
    search = re.compile(pattern).search
    return lambda v: not isinstance(v, str) or search(v) is not None


def _all_of(schemas: list[Mapping[str, Any]]) -> Accepts:
    checks = [compile_schema(schema) for schema in schemas]
    return lambda v: all(check(v) for check in checks)


def _one_of(schemas: list[Mapping[str, Any]]) -> Accepts:
    checks = [compile_schema(schema) for schema in schemas]
    return lambda v: sum(check(v) for check in checks) == 1


def _required(names: list[str]) -> Accepts:
    wanted = frozenset(names)
    return lambda v: not isinstance(v, dict) or v.keys() >= wanted


def _minimum(least: float) -> Accepts:
    return lambda v: not is_number(v) or v >= least


_KEYWORDS: Final[Mapping[str, Callable[[Any], Accepts]]] = {
    "type": _type,
    "enum": lambda values: lambda v: isinstance(v, str) and v in values,
    "const": lambda value: lambda v: v == value,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "required": _required,
    "items": _items,
    "allOf": _all_of,
    "oneOf": _one_of,
    "pattern": _pattern,
    "minimum": _minimum,
    "minLength": lambda least: lambda v: not isinstance(v, str) or len(v) >= least,
    "minItems": lambda least: lambda v: not isinstance(v, list) or len(v) >= least,
    "minProperties": lambda least: lambda v: not isinstance(v, dict) or len(v) >= least,
    "uniqueItems": lambda _: (
        lambda v: not isinstance(v, list) or not any(item in v[:at] for at, item in enumerate(v))
    ),
}
