"""The page on the entry language names all that the language has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileops.manifest.checks.schema import load_schema
from tileops.manifest.expressions import FUNCTIONS
from tileops.manifest.generators import ARGUMENTS
from tileops.manifest.vocabulary import PARAM_TYPES

PAGE = Path(__file__).parents[1] / "docs" / "entry-language.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="needs a checkout, which has the page")
def test_the_page_names_every_key_function_kind_and_type() -> None:
    text = PAGE.read_text(encoding="utf-8")
    schema = load_schema("op.schema.json")
    keys = set(schema["properties"])
    for definition in schema["$defs"].values():
        keys |= set(definition.get("properties", {}))
    words = keys | set(FUNCTIONS) | set(ARGUMENTS) | set(PARAM_TYPES)
    missing = [word for word in sorted(words) if not _named(word, text)]
    assert missing == []


def _named(word: str, text: str) -> bool:
    return any(f"{mark}{word}" in text for mark in ("`", "[", "signature.", "`signature.", '"'))


def test_the_schema_the_generators_and_the_params_agree() -> None:
    definitions = load_schema("op.schema.json")["$defs"]
    assert definitions["generator"]["properties"]["kind"]["enum"] == list(ARGUMENTS)
    arguments = set().union(*(needed | allowed for needed, allowed in ARGUMENTS.values()))
    assert set(definitions["generator"]["properties"]) - {"kind"} == arguments
    assert definitions["param"]["properties"]["type"]["enum"] == list(PARAM_TYPES)
