"""How the sinusoidal programs are laid out. Pure Python: no torch, no TileLang."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE, in_turn, spread

__all__ = ["ShortConfig", "SinusoidalConfig", "choose_config", "choose_short_config", "may_overlap"]

#: Tables of up to so many bytes are made by the short program: none, until it has been measured.
SHORT_BYTES = 0

#: The furthest angle of a short table, in turns; see ``short.programs`` for why.
_FURTHEST = 2.0**14

#: The bits of a thread's number in its row, where a program makes the frequencies.
NUMBER_BITS = 8


@dataclass(frozen=True)
class SinusoidalConfig:
    """Columns to threads, rows one after the other.

    Attributes:
        threads: threads of a block; each owns one access of a row, or one of each half.
        vector: elements of one access.
        rows: rows that a block makes.
        overlap: whether blocks start before the kernel before has ended, and wait for it before
            they write (sm_90 and up).
    """

    threads: int
    vector: int
    rows: int
    overlap: bool = False


@dataclass(frozen=True)
class ShortConfig:
    """Columns to threads, rows one after the other, for tables whose first store is what counts.

    Attributes:
        threads: threads of a block; each owns one access of a row, or one of each half.
        vector: elements of one access.
        rows: rows that a block makes.
        made: whether threads make their frequencies, of numbers that come with the launch, rather
            than load them; for at most 256 accesses a row, or a half of one.
        overlap: what blocks do before the kernel before has ended, on sm_90 and up. "none": they
            are not launched; "start": they are launched, and wait at once; "values": they make
            their values in shared memory, and wait before they write them out.
        unrolled: whether the rows are written out one after the other rather than in a loop.
    """

    threads: int
    vector: int
    rows: int
    made: bool = False
    overlap: Literal["none", "start", "values"] = "none"
    unrolled: bool = False


def choose_config(
    seq_len: int, d_model: int, base: float, interleaved: bool, dtype: str
) -> SinusoidalConfig | ShortConfig:
    """The layout for ``seq_len`` rows of ``d_model``, in which no access has sines of one half and
    cosines of the other.

    Rows of a block, in µs on an H200 (y.fill_ of the same bytes): 65536x2048 of float32 (159.2), 16
    120.8, 8 118.5; of bfloat16 (80.1), 62.5 and 60.5.
    """
    if seq_len * d_model * ITEMSIZE[dtype] <= SHORT_BYTES:
        short = choose_short_config(seq_len, d_model, base, interleaved, dtype)
        if short is not None:
            return short
    width, vector = _access(d_model, interleaved, dtype)
    threads, across = spread(width // vector)
    return SinusoidalConfig(threads, vector, in_turn(seq_len, across, 8))


def choose_short_config(
    seq_len: int, d_model: int, base: float, interleaved: bool, dtype: str
) -> ShortConfig | None:
    """The short program's layout, or None where it would not be exact to 2**-32 of a turn, or where
    indices would take more than 32 bits or the grid more than its second axis has."""
    width, vector = _access(d_model, interleaved, dtype)
    accesses = width // vector
    threads, across = spread(accesses)
    # In logarithms, since a power of a base below 1 may be more than a float holds.
    fastest = max(0.0, -math.log2(base) * (1 - 2 / d_model)) - math.log2(2 * math.pi)
    if math.log2(max(seq_len, 1)) + fastest > math.log2(_FURTHEST):
        return None
    if seq_len * accesses * (1 if interleaved else 2) >= 2**31 or across >= 2**16:
        return None
    return ShortConfig(
        threads, vector, in_turn(seq_len, across, 8), made=accesses <= 2**NUMBER_BITS
    )


def may_overlap(arch: str) -> bool:
    """Whether kernels of an architecture may be launched before the kernel before has ended."""
    found = re.match(r"sm_(\d+)", arch)
    return found is not None and int(found[1]) >= 90


def _access(d_model: int, interleaved: bool, dtype: str) -> tuple[int, int]:
    """The columns that threads share out, and the elements of one access."""
    # Where the halves are apart, a thread has an access in each.
    width = d_model if interleaved else d_model // 2
    return width, math.gcd(width, ACCESS_BYTES // ITEMSIZE[dtype])
