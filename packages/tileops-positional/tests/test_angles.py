"""How exact the angles of positions are."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from tileops.positional import RoPEFwdOp
from tileops.positional.angles import turns
from tileops.positional.rope.frequencies import default_rotation


@pytest.mark.parametrize("base", [3.7, 1e4, 5e5, 1e7])
def test_how_exact_angles_are(base: float) -> None:
    """At any position, it said, to 2**-32 of a turn; but a frequency has 53 bits."""
    with mpmath.workprec(200):
        exact = [mpmath.mpf(base) ** (-mpmath.mpf(i) / 32) for i in range(32)]
        words = turns(default_rotation(64, base).frequencies)
        for word, frequency in zip(words, exact, strict=True):
            off = abs(mpmath.mpf(word) / 2**64 - frequency / (2 * mpmath.pi))
            assert off < mpmath.mpf(2) ** -54
        positions = [2**20 + 7, 2**28, -(2**36) + 5, 2**45 + 1]
        q = torch.zeros(4, 1, 64)
        q[..., :32] = 1.0
        found = RoPEFwdOp(base=base)(q, position_ids=torch.tensor(positions))
        for at, position in enumerate(positions):
            # Radians, and one rounding of cosines and sines.
            allowed = 2 * math.pi * (2.0**-32 + abs(position) * 2.0**-54) + 2.0**-24
            for i, frequency in enumerate(exact):
                wanted = mpmath.cos(position * frequency), mpmath.sin(position * frequency)
                for value, right in zip(found[at, 0, i::32].tolist(), wanted, strict=True):
                    assert abs(value - right) < allowed
