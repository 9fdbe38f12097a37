"""How exact the angles of positions are."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import mpmath
import pytest
import torch

from tileops.positional import RoPEFwdOp
from tileops.positional.angles import float_turns, turns
from tileops.positional.rope.frequencies import default_rotation
from tileops.positional.sinusoidal.configs import SHORT_ROWS
from tileops.positional.sinusoidal.kernels import factors


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


@pytest.mark.parametrize("base", [1.0, 1.0001, 3.7, 1e4, 5e5, 1e269])
@pytest.mark.parametrize("d_model", [2, 12, 96, 768, 1280, 2048])
def test_how_exact_the_frequencies_of_short_tables_are(base: float, d_model: int) -> None:
    """Those in float64, and those that a kernel makes of factors, in the order in which it does."""
    pairs = d_model // 2
    given = factors(base, d_model)
    r = [given[f"r{bit}"] for bit in range(10)]
    read = float_turns([base ** (-2 * k / d_model) for k in range(pairs)])
    with mpmath.workprec(200):
        ratio = mpmath.mpf(base) ** (-mpmath.mpf(2) / d_model)
        exact = [ratio**k / (2 * mpmath.pi) for k in range(pairs)]
        for frequency, right in zip(read, exact, strict=True):
            assert abs(frequency - right) < mpmath.mpf(2) ** -54
    # An access has 1, 2 or 4 pairs, which differ in the lowest bits of their indices.
    for within in (0, 1, 2):
        if pairs % 2**within:
            continue
        for access in range(pairs >> within):
            product = [given["scale"], 1.0]
            for bit in range(10 - within):
                if access >> bit & 1:
                    product[bit % 2] *= r[within + bit]
            made = [product[0] * product[1]]
            for bit in range(within):
                made += [frequency * r[bit] for frequency in made]
            for p, frequency in enumerate(made):
                # 11 numbers of float64, those of pow to a unit in the last place, 11 products.
                off = abs(frequency - exact[(access << within) + p])
                assert off < mpmath.mpf(2) ** -50, (access, p)


def test_how_exact_the_angles_of_short_tables_are() -> None:
    """A kernel's fused product and sum in float64, of which it takes the lower 32 bits."""
    frequencies = [5e5 ** (-2 * k / 512) for k in range(0, 256, 5)]
    rows = [1, 2, 999, 2**17 - 1, 2**20 + 7, SHORT_ROWS - 1]
    with mpmath.workprec(200):
        for k, frequency in zip(range(0, 256, 5), float_turns(frequencies), strict=True):
            turn = mpmath.mpf(5e5) ** (-mpmath.mpf(2 * k) / 512) / (2 * mpmath.pi)
            for row in rows:
                total = float(Fraction(row) * Fraction(frequency) + 2**20)
                (bits,) = struct.unpack("<Q", struct.pack("<d", total))
                off = (mpmath.mpf(bits % 2**32) / 2**32 - row * turn) % 1
                allowed = mpmath.mpf(2) ** -33 + row * mpmath.mpf(2) ** -54
                assert min(off, 1 - off) <= allowed, (k, row)
