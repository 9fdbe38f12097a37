"""Entries that were damaged at random: the checks report faults and never fail themselves."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, validators

from tileops.manifest import ManifestError, iter_entries, load_text
from tileops.manifest.checks.accept import is_int
from tileops.manifest.checks.report import Report
from tileops.manifest.checks.schema import check_schema, load_schema
from tileops.manifest.diff import compare_entries
from tileops.manifest.load import parse_text
from tileops.manifest.show import render
from tileops.manifest.validate import validate_files

ENTRIES = list(iter_entries())
TEXTS = [entry.path.read_text(encoding="utf-8") for entry in ENTRIES]
TOKEN = re.compile(r'[A-Za-z_]+|\d+|"[^"\n]*"|\[\[?[a-z.]+\]?\]|[-+*/<>=!%()]+')
WORDS = sorted({word for text in TEXTS for word in TOKEN.findall(text)})


def damaged(text: str, source: random.Random) -> str:
    """Take a line out, put one in twice, or put another word in the place of one."""
    lines = text.split("\n")
    kind = source.random()
    if kind < 0.25:
        del lines[source.randrange(len(lines))]
    elif kind < 0.35:
        lines.insert(source.randrange(len(lines)), source.choice(lines))
    else:
        word = source.choice(list(TOKEN.finditer(text)))
        return text[: word.start()] + source.choice(WORDS) + text[word.end() :]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_every_damage_is_a_fault_or_harmless(seed: int, tmp_path: Path) -> None:
    """An exception from a check would hide every other fault of the tree that it runs over.

    Whether a document is valid by the schema is also asked of jsonschema, by the standard's rules
    but for TOML's ints.
    """
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: is_int(value))
    kind = validators.extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]
    standard = kind(load_schema("op.schema.json"))
    source = random.Random(seed)
    for _ in range(100):
        at = source.randrange(len(TEXTS))
        text = damaged(TEXTS[at], source)
        path = tmp_path / "entry.toml"
        path.write_text(text, encoding="utf-8")
        try:
            document = parse_text(path, text)
        except ManifestError:
            continue
        assert check_schema(document, Report(path, text)) == standard.is_valid(document)
        result = validate_files([(path, "tileops")])
        if [fault for fault in result.faults if "the file of" not in fault.requirement]:
            assert all(str(fault) for fault in result.faults)
        else:
            entry = load_text(text)
            assert render(entry)
            compare_entries(ENTRIES[at], entry)
