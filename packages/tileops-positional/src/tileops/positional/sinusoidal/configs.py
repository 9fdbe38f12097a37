"""How the sinusoidal programs are laid out. Pure Python: no torch, no TileLang."""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE, in_turn, spread

__all__ = ["ShortConfig", "SinusoidalConfig", "choose_config"]

#: Tables of up to so many bytes are made by the short program. Of those measured, it took less time
#: than the other for 1 to 8 MB, and more for 512 MB (122.9 µs beside 118.2); between 8 and 512 MB
#: none was measured.
SHORT_BYTES = 2**24


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


# Programmatic dependent launch is not used: it is faster in replays of itself alone (1500x1280 of
# float16: 1.85 µs beside 2.40), and slower behind a plainly launched kernel, which is what comes
# before in a model (torch.add and the table: 16.94 beside 16.75).


@dataclass(frozen=True)
class ShortConfig:
    """As :class:`SinusoidalConfig`, for tables whose first store is what counts.

    Attributes:
        columns: threads along a row; each owns one access of it, or one of each half.
        lines: rows side by side in a block, which has ``columns * lines`` threads.
        vector: elements of one access.
        rows: rows that a thread makes, one after the other, ``lines`` apart.
    """

    columns: int
    lines: int
    vector: int
    rows: int


def choose_config(
    seq_len: int, d_model: int, interleaved: bool, dtype: str
) -> SinusoidalConfig | ShortConfig:
    """The layout for ``seq_len`` rows of ``d_model``, in which no access has sines of one half and
    cosines of the other.

    Rows of a block, in µs on an H200 (y.fill_ of the same bytes): 65536x2048 of float32 (159.2), 16
    120.8, 8 118.5; of bfloat16 (80.1), 62.5 and 60.5.
    """
    # Where the halves are apart, a thread has an access in each.
    width = d_model if interleaved else d_model // 2
    vector = math.gcd(width, ACCESS_BYTES // ITEMSIZE[dtype])
    accesses = width // vector
    size = seq_len * d_model * ITEMSIZE[dtype]
    if size <= SHORT_BYTES:
        across = -(-accesses // 256)
        columns = -(-accesses // across)
        # Blocks of at least 128 threads: with one row of 64 or 96, the figures below are furthest
        # from a fill's.
        lines = -(-128 // columns)
        rows = in_turn(-(-seq_len // lines), across, _most_short_rows(size, dtype))
        return ShortConfig(columns, lines, vector, rows)
    threads, across = spread(accesses)
    return SinusoidalConfig(threads, vector, in_turn(seq_len, across, 8))


def _most_short_rows(size: int, dtype: str) -> int:
    """Rows that a thread makes at most, one after the other, in a short table of ``size`` bytes.

    In µs on an H200, medians of replays of 200 calls in a CUDA graph, the outputs going round
    through more than L2, one row side by side: 512x512 of float32 in halves, 1 row 1.74, 2 1.73, 4
    1.85; 1024x1024 of float32, 1 2.43, 2 2.49, 4 2.49; 1500x1280 of float16, 1 2.50, 2 2.44, 4
    2.40, 6 2.40, 12 2.72; that in halves, 2 2.81, 4 2.84; 4096x1024 of bfloat16, 4 3.49, 8 3.47.
    The other program took 1.90, 2.66, 2.64, 3.24 and 3.72, y.fill_ 1.42, 2.19, 2.13, 2.11 and 3.47.
    They are of a short program that had its angles from float64.
    """
    return 1 if dtype == "float32" and size <= 2**22 else 4
