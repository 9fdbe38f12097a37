"""Every statement of the specification is shown by a test that exists and runs.

``spec_statements.toml`` lists the statements of the specification and of the design card in our
own words, each with the tests that show it.
"""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_name("spec_statements.toml")


@functools.cache
def statements() -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = tomllib.loads(TABLE.read_text("utf-8"))["statement"]
    return table


@functools.cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def faults(table: list[dict[str, Any]], outcomes: dict[str, set[str]]) -> list[str]:
    """What is wrong with the table, given what became of the tests of this run.

    A statement about CUDA devices (``device = "cuda"``) may have its tests skipped here.
    """
    found = []
    seen = set()
    for statement in table:
        where = statement["id"]
        if where in seen:
            found.append(f"{where}: listed twice")
        seen.add(where)
        if not statement["says"].strip() or not statement["tests"]:
            found.append(f"{where}: says nothing, or names no test")
        results: set[str] = set()
        complete = bool(statement["tests"])
        for test in statement["tests"]:
            file, _, name = test.partition("::")
            if not (ROOT / file).is_file() or name not in functions(ROOT / file):
                found.append(f"{where}: there is no test {test}")
                complete = False
                continue
            runs = [o for node, o in outcomes.items() if node.partition("[")[0] == test]
            complete = complete and bool(runs) and all(runs)
            results |= set().union(*runs) if runs else set()
        elsewhere = statement.get("device") == "cuda"
        if complete and "passed" not in results and not elsewhere:
            found.append(f"{where}: none of its tests passed; they were {sorted(results)}")
    return found


def test_the_table_holds_statements_of_both_documents() -> None:
    """An empty table would pass everything below."""
    sources = [statement["source"].partition(":")[0] for statement in statements()]
    assert sources.count("spec") > 60
    assert sources.count("card") > 5


@pytest.mark.looks_back
def test_every_statement_is_shown(outcomes: dict[str, set[str]]) -> None:
    """Runs after all others, so that it sees which of them were skipped."""
    assert faults(statements(), outcomes) == []


def test_the_check_can_fail() -> None:
    here = "tests/test_spec_statements.py"
    real = f"{here}::test_the_check_can_fail"
    base: dict[str, Any] = {"source": "spec: none", "says": "something"}
    table = [
        {**base, "id": "none", "tests": []},
        {**base, "id": "typo", "tests": [f"{here}::test_typo", "tests/nowhere.py::test_x"]},
        {**base, "id": "skipped", "tests": [real]},
        {**base, "id": "skipped", "tests": [real], "device": "cuda"},
    ]
    assert faults(table, {f"{real}[a]": {"skipped"}, f"{real}[b]": {"skipped"}}) == [
        "none: says nothing, or names no test",
        f"typo: there is no test {here}::test_typo",
        "typo: there is no test tests/nowhere.py::test_x",
        "skipped: none of its tests passed; they were ['skipped']",
        "skipped: listed twice",
    ]
    shown = [{**base, "id": "shown", "tests": [real]}]
    assert faults(shown, {f"{real}[a]": {"skipped"}, f"{real}[b]": {"passed"}}) == []
    # Not among the tests of this run: it is there, and that is all that can be said.
    assert faults(shown, {}) == []
