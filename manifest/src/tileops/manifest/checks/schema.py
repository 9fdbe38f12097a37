"""Level 1: the document against the JSON Schema, in words of the entry language."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tileops.manifest.checks.accept import compile_schema, inlined, is_int, is_number
from tileops.manifest.checks.report import Report, Where, brief, closest, shown

__all__ = ["check_schema", "fault_by_schema", "load_schema", "schema_folder"]

_TYPES: Final = {
    "string": "a string",
    "integer": "an int",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "a table",
}


def schema_folder() -> Path:
    """Return the folder of the JSON Schemas: the installed one, else that of the sources.

    :raises FileNotFoundError: there is none.
    """
    here = Path(__file__).parents
    # In a wheel, in a checkout, in an unpacked source distribution.
    for folder in (here[1], here[5], here[4]):
        if (folder / "schema" / "op.schema.json").is_file():
            return folder / "schema"
    raise FileNotFoundError(f"no schemas in {here[1] / 'schema'}: reinstall tileops-manifest")


@functools.cache
def load_schema(name: str) -> dict[str, Any]:
    """Return one of the schemas, ``op.schema.json``."""
    document: dict[str, Any] = json.loads((schema_folder() / name).read_text(encoding="utf-8"))
    return document


def fault_by_schema(document: Any, name: str) -> str:
    """What is wrong with a document by one of the schemas, "" where nothing is."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    wrong = best_match(Draft202012Validator(load_schema(name)).iter_errors(document))
    return "" if wrong is None else f"{wrong.json_path}: {wrong.message}"


def check_schema(document: Mapping[str, Any], report: Report) -> bool:
    """Whether a document is valid by ``op.schema.json``; all that is not is reported."""
    if _accepts()(document):
        return True
    for error in sorted(_validator().iter_errors(document), key=lambda error: error.json_path):
        _describe(error, report)
    return False


def _describe(error: Any, report: Report) -> None:
    where: Where = tuple(error.absolute_path)
    schema, value = error.schema, error.instance
    if error.validator == "unevaluatedProperties":
        known = schema["properties"]
        for key in sorted(value.keys() - known):
            remedy = closest(key, sorted(known.keys() - value), "its keys are " + ", ".join(known))
            report.add((*where, key), f"{shown(where)} takes only its own keys", repr(key), remedy)
    elif error.validator == "required":
        # One error comes for each key that is missing, and it names the key in its message only.
        key = next(key for key in error.validator_value if error.message.startswith(repr(key)))
        what = schema["properties"][key]["description"]
        report.add(where, f"{shown(where)} needs `{key}`", "", f"add {key}, {what}")
    elif error.validator == "propertyNames":
        pass  # jsonschema reports the name itself, as the error below.
    elif error.validator == "oneOf":
        report.add(where, f"{shown(where)}: {schema['$comment']}", "", "write one of the two")
    else:
        requirement = f"{shown(where)} is {schema.get('description', 'as the schema says')}"
        report.add(where, requirement, brief(value), _remedy(error))


def _remedy(error: Any) -> str:
    rule, limit = error.validator, error.validator_value
    if rule == "type":
        value = error.instance
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not is_number(value):
            return "write a finite number of 64 bits"
        types = [limit] if isinstance(limit, str) else limit
        return "write " + " or ".join(_TYPES[name] for name in types)
    if rule == "enum":
        return closest(str(error.instance), limit)
    if rule == "pattern":
        return f"write it like {error.schema['examples'][0]!r}"
    if rule == "const":
        return f"write {limit!r}"
    if rule == "minLength":
        return "write what it says"
    if rule in ("minItems", "minProperties", "minimum"):
        return f"write at least {limit}"
    return "leave out what stands there twice" if rule == "uniqueItems" else "see the schema"


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator, validators

    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: is_int(value),
            "number": lambda _, value: is_number(value),
        }
    )
    extend: Any = validators.extend
    kind = extend(Draft202012Validator, type_checker=types)
    return kind(inlined(load_schema("op.schema.json")))


@functools.cache
def _accepts() -> Callable[[Any], bool]:
    return compile_schema(inlined(load_schema("op.schema.json")))
