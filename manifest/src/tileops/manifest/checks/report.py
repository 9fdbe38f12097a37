"""Collecting what is wrong with one document."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from tileops.manifest.expressions import ExpressionError
from tileops.manifest.faults import Fault
from tileops.manifest.lines import Lines

__all__ = ["Report", "Where", "brief", "closest", "shown"]

Where = tuple["str | int", ...]


class Report:
    """The faults of one document, each placed by the path of the value that it is about."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = Lines(text)
        self.faults: list[Fault] = []

    def add(self, where: Where, requirement: str, value: str = "", remedy: str = "") -> None:
        line = self.lines.of(*where)
        self.faults.append(Fault(self.path, line, requirement, value, remedy))

    def add_error(self, where: Where, error: ExpressionError, source: str) -> None:
        """Add what is wrong with the expression at ``where``."""
        self.add(where, f"{shown(where)}: {error.message}", brief(source), error.remedy)

    def sorted(self) -> list[Fault]:
        """Return the faults in the order of their lines."""
        return sorted(self.faults, key=lambda fault: fault.line)


def shown(where: Where) -> str:
    """Return a path as a person writes it: ``signature.inputs[1].dtype``."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the entry"


def brief(value: object) -> str:
    """Return a value as a message holds it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:66]} ...{text[-1]}"


def closest(word: str, words: Iterable[str], otherwise: str = "") -> str:
    """Return a suggestion for a word that is none of ``words``."""
    listed = list(words)
    near = difflib.get_close_matches(word, listed, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return otherwise or ("write one of " + ", ".join(listed) if listed else "remove it")
