"""How the sinusoidal program is laid out. Pure Python: no torch, no TileLang."""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE, in_turn, spread

__all__ = ["SinusoidalConfig", "choose_config"]


@dataclass(frozen=True)
class SinusoidalConfig:
    """Columns to threads, rows one after the other.

    Attributes:
        threads: threads of a block; each owns one access of a row, or one of each half.
        vector: elements of one access.
        rows: rows that a block makes.
    """

    threads: int
    vector: int
    rows: int


def choose_config(seq_len: int, d_model: int, interleaved: bool, dtype: str) -> SinusoidalConfig:
    """The layout for ``seq_len`` rows of ``d_model``, in which no access has sines of one half and
    cosines of the other.

    Rows of a block, in µs on an H200 (y.fill_ of the same bytes): 65536x2048 of float32 (159.2), 16
    120.8, 8 118.5; of bfloat16 (80.1), 62.5 and 60.5.
    """
    # Where the halves are apart, a thread has an access in each.
    width = d_model if interleaved else d_model // 2
    vector = math.gcd(width, ACCESS_BYTES // ITEMSIZE[dtype])
    threads, across = spread(width // vector)
    return SinusoidalConfig(threads, vector, in_turn(seq_len, across, 8))
