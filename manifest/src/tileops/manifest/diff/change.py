"""One change of an entry, and how far it reaches."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["Change", "Level"]


class Level(enum.IntEnum):
    """What a change asks of a caller."""

    NEUTRAL = 0
    """Nothing: every call means what it did."""
    ADDITIVE = 1
    """Nothing, but there is more to call."""
    BREAKING = 2
    """A call that was right may now be refused, or give something else."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclasses.dataclass(frozen=True)
class Change:
    """One change of one op."""

    op: str
    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.op}: {self.level}: {self.text}"
