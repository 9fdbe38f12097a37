"""The sizes of a channel norm, and what they come to for the programs.

Pure Python: no torch, no TileLang.

A *unit* is what is normalized together: a group of a sample's channels, a channel of a sample, or a
channel of the whole batch. It consists of *segments*, each the ``space`` elements of one channel of
one sample. The segments of a group or of a sample's channel follow each other in memory, so that
the unit is one run of elements; those of a batch's channel lie a sample apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Mode", "Shape", "divider"]

Mode = Literal["group", "instance", "batch"]


@dataclass(frozen=True)
class Shape:
    """``[samples, channels, space]``, its spatial axes in one, and what is normalized together."""

    mode: Mode
    samples: int
    channels: int
    space: int
    num_groups: int = 0

    @property
    def elements(self) -> int:
        return self.samples * self.channels * self.space

    @property
    def groups(self) -> int:
        """Units of a sample, or for a batch all units."""
        return self.num_groups if self.mode == "group" else self.channels

    @property
    def units(self) -> int:
        return self.groups * (1 if self.mode == "batch" else self.samples)

    @property
    def segments(self) -> int:
        """Segments of a unit."""
        if self.mode == "group":
            return self.channels // self.num_groups
        return self.samples if self.mode == "batch" else 1

    @property
    def size(self) -> int:
        """Elements of a unit."""
        return self.segments * self.space

    @property
    def run(self) -> int:
        """Elements of a unit that follow each other in memory."""
        return self.space if self.mode == "batch" else self.size

    @property
    def pitch(self) -> int:
        """Elements from a unit's start to that of the next."""
        return self.space if self.mode == "batch" else self.size

    @property
    def stride(self) -> int:
        """Elements from a segment's start to that of the unit's next segment."""
        return self.channels * self.space if self.mode == "batch" else self.space


def divider(divisor: int) -> tuple[int, int]:
    """``(magic, shift)``: ``n // divisor == (umulhi(n, magic) + n) >> shift`` for 0 <= n < 2**31.

    Division by invariant multiplication (Granlund and Montgomery 1994, figure 4.1), for divisors
    from 1 to 2**31 - 1. ``umulhi`` is the upper half of a product of two 32-bit numbers.
    """
    shift = (divisor - 1).bit_length()
    return ((2**32 * (2**shift - divisor)) // divisor + 1) & (2**32 - 1), shift
