"""How the sinusoidal program is laid out. Pure Python: no torch, no TileLang."""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE

__all__ = ["SinusoidalConfig", "choose_config"]


@dataclass(frozen=True)
class SinusoidalConfig:
    """Columns to threads, rows one after the other.

    Attributes:
        threads: threads of a block; each owns one access of a row.
        vector: elements of one access.
        rows: rows that a block makes.
    """

    threads: int
    vector: int
    rows: int


def choose_config(d_model: int, interleaved: bool, dtype: str) -> SinusoidalConfig:
    """The layout for rows of ``d_model``, in which no access has sines of one half and cosines of
    the other.

    Untimed so far.
    """
    whole = d_model if interleaved else d_model // 2
    vector = math.gcd(whole, ACCESS_BYTES // ITEMSIZE[dtype])
    accesses = d_model // vector
    return SinusoidalConfig(min(256, max(32, 1 << (accesses - 1).bit_length())), vector, rows=8)
