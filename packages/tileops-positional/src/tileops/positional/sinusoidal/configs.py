"""How the sinusoidal programs are laid out. Pure Python: no torch, no TileLang."""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE, in_turn, spread

__all__ = ["ShortConfig", "SinusoidalConfig", "choose_config"]

#: Tables of up to so many bytes are made by the short program. In µs on an H200, the short program
#: and the other (y.fill_): 8192x1024 of bfloat16 5.37 and 5.80 (5.92); of float32, 1024x1024 2.51
#: and 2.65 (2.17), 4096x4096 17.2 and 16.7 (15.8).
SHORT_BYTES = {"float16": 2**24, "bfloat16": 2**24, "float32": 2**23}


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


# Programmatic dependent launch is not used: it is faster in replays of the table alone (1500x1280
# of float16: 1.85 µs beside 2.40), where each kernel lets the next one start. Behind a plainly
# launched one, as in a model, it costs time: torch.add and an RMSNorm took 16.94 µs beside 16.75.


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
    if size <= SHORT_BYTES[dtype]:
        return _short(seq_len, width, interleaved, dtype, size)
    threads, across = spread(accesses)
    return SinusoidalConfig(threads, vector, in_turn(seq_len, across, 8))


def _short(seq_len: int, width: int, interleaved: bool, dtype: str, size: int) -> ShortConfig:
    """The layout of a table of ``size`` bytes, of rows that are ``width`` wide, or their halves.

    In µs on an H200, medians of replays of 200 calls in a CUDA graph, the outputs going round
    through more than L2; "columns x lines, elements, rows". The other program took, in this order,
    2.61, 3.19, 3.71, 5.80, 2.65 and 1.92, y.fill_ 2.12, 2.12, 3.48, 5.92, 2.17 and 1.42.

    - 1500x1280 of float16: 160x1, 8, 1 2.56; 2 2.45; 4 2.42; 6 2.42
    - that in halves: 80x2, 8, 2 2.71; 160x1, 4, 4 2.41: a thread reads 8 bytes a frequency
    - 4096x1024 of bfloat16: 128x1, 8, 4 3.56; 8 3.48
    - 8192x1024 of bfloat16: 128x1, 8, 4 5.65; 8 5.37
    - 1024x1024 of float32: 256x1, 4, 1 2.57; 2 2.59; 128x1, 4, 1 2.59; 2 2.51
    - 512x512 of float32 in halves: 64x2, 4, 1 1.77; 128x1, 2, 1 1.73
    """
    wide = dtype == "float32"
    bytes_of_an_access = ACCESS_BYTES if interleaved else ACCESS_BYTES // 2
    vector = math.gcd(width, bytes_of_an_access // ITEMSIZE[dtype])
    accesses = width // vector
    across = -(-accesses // (128 if wide else 256))
    columns = -(-accesses // across)
    lines = -(-128 // columns)
    most = 2 if wide else 4 if size <= 2**22 else 8
    rows = in_turn(-(-seq_len // lines), across, most)
    return ShortConfig(columns, lines, vector, rows)
