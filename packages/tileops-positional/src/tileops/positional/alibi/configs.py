"""How the ALiBi program is laid out. Pure Python: no torch, no TileLang."""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE

__all__ = ["AlibiConfig", "choose_config"]


@dataclass(frozen=True)
class AlibiConfig:
    """Rows in bands whose size is a whole number of accesses.

    Attributes:
        threads: threads of a block; each owns one access of a band.
        vector: elements of one access.
        rows: rows of a band: the fewest that make whole accesses.
        bands: bands that a block makes, one after the other.
    """

    threads: int
    vector: int
    rows: int
    bands: int


def choose_config(seq_len: int, dtype: str) -> AlibiConfig:
    """The layout for rows of ``seq_len``.

    Untimed so far: 256 threads with one access each cover a band of 2048 16-bit numbers, and eight
    bands a block keep what a thread works out once small beside what it writes.
    """
    vector = ACCESS_BYTES // ITEMSIZE[dtype]
    if seq_len < vector:
        vector = 1  # an access would span more than two rows
    rows = vector // math.gcd(seq_len, vector)
    accesses = rows * seq_len // vector
    threads = min(256, max(32, 1 << (accesses - 1).bit_length()))
    return AlibiConfig(threads, vector, rows, bands=8)
