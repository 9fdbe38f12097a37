"""The JSON Schemas: closed, explained, self-contained, and checked as the standard says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tileops.manifest import iter_entries
from tileops.manifest.checks.accept import compile_schema
from tileops.manifest.checks.grammar import expressions_of
from tileops.manifest.checks.schema import load_schema

SCHEMAS = [
    "op.schema.json",
    "manifest-export.schema.json",
    "bench-report.schema.json",
    "contract-report.schema.json",
]


def subschemas(schema: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if not path.endswith(("/properties", "/$defs")):
            yield path, schema
        for key, value in schema.items():
            if key not in ("examples", "enum", "const"):
                yield from subschemas(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for at, value in enumerate(schema):
            yield from subschemas(value, f"{path}/{at}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_is_a_schema_that_downloads_nothing(name: str) -> None:
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    references = [s["$ref"] for _, s in subschemas(schema) if "$ref" in s]
    assert [reference for reference in references if not reference.startswith("#/$defs/")] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_unevaluated_properties_stands_beside_all_properties(name: str) -> None:
    """That is what lets the quick check answer it from ``properties`` alone."""
    for path, schema in subschemas(load_schema(name)):
        if "unevaluatedProperties" not in schema:
            continue
        assert schema["unevaluatedProperties"] is False, path
        applied = [*schema.get("allOf", []), *schema.get("oneOf", []), *schema.get("anyOf", [])]
        inner = [s for one in applied for _, s in subschemas(one)]
        assert not any("properties" in s or "$ref" in s for s in inner), path
        assert "patternProperties" not in schema, path


def test_everything_that_a_fault_may_be_about_is_described() -> None:
    """A fault says what is required in the description's words."""
    schema = load_schema("op.schema.json")
    bare = [
        path
        for path, one in subschemas(schema)
        if ("type" in one or "enum" in one or "const" in one) and "description" not in one
    ]
    assert bare == []


def test_a_keyword_that_the_quick_check_does_not_know_is_refused() -> None:
    """Otherwise a schema could say more than is checked when an entry is loaded."""
    with pytest.raises(NotImplementedError, match=r"^the keyword 'maxLength'$"):
        compile_schema({"type": "string", "maxLength": 3})


def test_the_walk_over_expressions_misses_none() -> None:
    """Each key that the schema calls an expression or a condition is parsed by the checks."""
    [entry] = [entry for entry in iter_entries() if entry.name == "RoPEFwdOp"]
    found = {".".join(map(str, where)): source for where, source in expressions_of(entry.document)}
    assert found["signature.inputs.0.mutated"] == "inplace"
    assert found["signature.outputs.1.when"] == "k is not None"
    assert found["signature.rules.0.require"] == "1e-270 < base < 1e270"
    assert found["roofline.flops"].startswith("3 * prod(B)")
