"""How the ALiBi program is laid out. Pure Python: no torch, no TileLang."""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE, in_turn, spread

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


def choose_config(num_heads: int, seq_len: int, dtype: str) -> AlibiConfig:
    """The layout for a table of ``num_heads`` heads of ``seq_len`` positions.

    Bands of a block, in µs on an H200 (y.fill_ of the same bytes): 32x2048 of bfloat16 (80.5), 16
    62.1, 8 60.0, 4 59.4; 112x2048 (277.8), 209.6, 204.7, 202.2; 32x2047 (80.4), 65.9, 62.5, 62.9;
    32x2048 of float32 (159.2), 120.7, 118.8, 116.5.
    """
    vector = ACCESS_BYTES // ITEMSIZE[dtype]
    if seq_len < vector:
        vector = 1  # an access would span more than two rows
    rows = vector // math.gcd(seq_len, vector)
    threads, across = spread(rows * seq_len // vector)
    return AlibiConfig(threads, vector, rows, in_turn(-(-num_heads * seq_len // rows), across, 4))
