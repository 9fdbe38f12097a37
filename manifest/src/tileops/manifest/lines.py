"""Where each key of a TOML document stands, found without a second parser.

The document has been parsed, so its syntax is right, and a scan that knows strings, brackets and
comments is enough to see where statements start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tileops.manifest._toml import tomllib

__all__ = ["Lines"]

Path = tuple["str | int", ...]

_QUOTED: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|' + r"'''(?:[^']|'(?!''))*'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'|#[^\n]*",
    re.DOTALL,
)
_STATEMENT: Final = re.compile(
    r"^[ \t]*(?:(\[\[?)([^\n\]]+)\]\]?|([^\s=\[\]#][^=\n]*?)[ \t]*=)", re.MULTILINE
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class Lines:
    """The line of every statement of one document."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        table: Path = ()
        counts: dict[Path, int] = {}
        for line, bracket, key in _statements(text):
            path = _parts(key)
            if not bracket:
                self._note(table + path, line)
                continue
            table = ()
            for at, part in enumerate(path):
                table += (part,)
                if bracket == "[[" and at == len(path) - 1:
                    counts[table] = counts.get(table, -1) + 1
                    table += (counts[table],)
                elif table in counts:
                    table += (counts[table],)
            self._note(table, line)

    def _note(self, path: Path, line: int) -> None:
        for end in range(len(path), 0, -1):
            self._lines.setdefault(path[:end], line)

    def of(self, *path: str | int) -> int:
        """Return the line of the statement that holds ``path``, of its nearest parent, or 1."""
        for end in range(len(path), 0, -1):
            line = self._lines.get(path[:end])
            if line is not None:
                return line
        return 1


def _statements(text: str) -> list[tuple[int, str, str]]:
    """Return each statement's line, ``[``/``[[`` or ``""``, and key."""
    found = []
    masked = _QUOTED.sub(_blank, text)
    depth = 0
    for number, (line, original) in enumerate(
        zip(masked.split("\n"), text.split("\n"), strict=True), start=1
    ):
        if depth == 0:
            match = _STATEMENT.match(line)
            if match is not None:
                bracket = match[1]
                start, end = match.span(2 if bracket else 3)
                found.append((number, bracket or "", original[start:end]))
                if bracket:
                    continue
        depth += sum(map(line.count, "[{")) - sum(map(line.count, "]}"))
    return found


def _blank(match: re.Match[str]) -> str:
    """Hide brackets and ``=`` in strings and comments, but keep every line and column."""
    return re.sub(r"[^\n]", "_", match[0]) if match[0][0] != "#" else " " * len(match[0])


def _parts(key: str) -> Path:
    """Split a (dotted, perhaps quoted) key."""
    if _BARE.fullmatch(key):
        return tuple(key.split("."))
    node: Mapping[str, Any] = tomllib.loads(f"{key} = 0")
    path: list[str | int] = []
    value: Any = node
    while isinstance(value, Mapping):
        (part, value), *_ = value.items()
        path.append(part)
    return tuple(path)
