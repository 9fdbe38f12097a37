"""How far a run is, on standard error: one line that moves on a terminal, else a line a step."""

from __future__ import annotations

import sys
from typing import TextIO

__all__ = ["Progress"]

_CELLS = 24
_WIDTH = 100


class Progress:
    """Told of each step before it begins."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._moving = self._stream.isatty()

    def __call__(self, number: int, count: int, name: str) -> None:
        done = (number - 1) * _CELLS // max(count, 1)
        bar = "#" * done + "." * (_CELLS - done)
        line = f"[{bar}] {number}/{count} {name}"
        if self._moving:
            print(f"\r{line[:_WIDTH]:{_WIDTH}}", end="", file=self._stream, flush=True)
        else:
            print(line, file=self._stream, flush=True)

    def end(self) -> None:
        """Takes a moving line away."""
        if self._moving:
            print(f"\r{'':{_WIDTH}}\r", end="", file=self._stream, flush=True)
