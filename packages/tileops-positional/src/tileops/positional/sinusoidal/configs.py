"""How the sinusoidal programs are laid out. Pure Python: no torch, no TileLang."""

import math
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE, in_turn, spread

__all__ = ["ShortConfig", "SinusoidalConfig", "choose_config"]

# Figures are µs on an H200, medians of replays of up to 200 calls in a CUDA graph, the outputs
# going round through more than L2. In brackets, y.fill_ of the same bytes in the same run.

#: Tables of up to so many bytes are made by the short programs. The short one and the other:
#: 8192x1024 of bfloat16 5.36 and 5.76 (5.92); of float32 4096x4096 16.13 and 16.21 (15.73), its
#: halves 16.15 and 16.57 (15.72), 16384x2048 30.53 and 30.72 (30.07).
SHORT_BYTES = {"float16": 2**24, "bfloat16": 2**24, "float32": 2**27}

#: An angle of a short program is below 2**20 turns: see there.
SHORT_ROWS = 2**22

#: Tables of up to so many bytes have their frequencies made of factors, not read. Made and read:
#: 1500x1280 of float16 2.36 and 2.37 (2.10), its halves 2.36 and 2.39; 512x512 of float32 1.60 and
#: 1.72 (1.41), 1024x1024 2.51 and 2.46 (2.18); 8192x1024 of bfloat16 5.40 and 5.36 (5.92).
FACTORED_BYTES = {"float16": 2**22, "bfloat16": 2**22, "float32": 2**20}

#: Up to here a position times what such a frequency is off by is less than 2**-33 of a turn.
FACTORED_ROWS = 2**17


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
    """As :class:`SinusoidalConfig`, for the short programs.

    Attributes:
        columns: threads along a row; each owns one access of it, or one of each half.
        lines: rows side by side in a block, which has ``columns * lines`` threads.
        vector: elements of one access.
        rows: rows that a thread makes, one after the other, ``lines`` apart.
        along: whether blocks follow each other along a row, rather than down the rows.
        bits: of an access's place in its row (or half), where frequencies are made of factors;
            0 where they are read.
    """

    columns: int
    lines: int
    vector: int
    rows: int
    along: bool = False
    bits: int = 0


def choose_config(
    seq_len: int, d_model: int, interleaved: bool, dtype: str, base: float
) -> SinusoidalConfig | ShortConfig:
    """The layout for ``seq_len`` rows of ``d_model``, in which no access has sines of one half and
    cosines of the other.

    Rows of a block of the program for any table: 65536x2048 of float32, 8 118.3, 4 116.5 (115.7);
    of bfloat16, 60.3 and 59.6 (79.8); 4096x4096 of float32, 16 17.2, 8 16.7, 4 16.2, 2 19.0 (15.7).
    """
    # Where the halves are apart, a thread has an access in each, of 8 bytes: 8192x2048 of float16,
    # 16 bytes 10.79, 8 bytes 9.53 (10.9); 4096x4096 of float32, 16.70 and 16.57 (15.72).
    width = d_model if interleaved else d_model // 2
    access = ACCESS_BYTES if interleaved else ACCESS_BYTES // 2
    vector = math.gcd(width, access // ITEMSIZE[dtype])
    accesses = width // vector
    size = seq_len * d_model * ITEMSIZE[dtype]
    # With a base of at least 1, frequencies are at most a radian a position.
    if size <= SHORT_BYTES[dtype] and seq_len <= SHORT_ROWS and base >= 1:
        found = _short(seq_len, accesses, interleaved, dtype, vector, size)
        # The second axis of a grid has fewer blocks than that.
        groups, across = -(-seq_len // (found.rows * found.lines)), -(-accesses // found.columns)
        if (groups if found.along else across) < 2**16:
            return found
    threads, across = spread(accesses)
    rows = in_turn(seq_len, across, 4)
    # A grid has fewer blocks than that.
    while -(-seq_len // rows) * across >= 2**31:
        rows *= 2
    return SinusoidalConfig(threads, vector, rows)


def _short(
    seq_len: int, accesses: int, interleaved: bool, dtype: str, vector: int, size: int
) -> ShortConfig:
    """The layout of a table of ``size`` bytes, of so many accesses to a row, or to half of one.

    "Columns x lines, rows" of accesses of 16 bytes, or of 8 where there are halves:

    - 512x512 of float32 (1.41): 128x1, 1 1.60; 64x2, 1 1.63; its halves: 128x1, 1 1.60; 32x4, 1
      1.63; 64x2, 1 1.64; 32x4, 2 1.70
    - 1500x1280 of float16 (2.12): 160x1, 3 2.40; 4 2.38; 6 2.37; 80x1, 4 2.42; 160x2, 4 2.43
    - 1024x1024 of float32 (2.17): 128x1, 2 2.42; 3 2.42; 4 2.46; 32x4, 3 2.43; 4 2.45
    - 2048x1024 of float32 (3.12): 32x8, 8 3.36; 32x4, 8 3.35; 16 3.33; 32 3.76; 128x1, 16 3.50
    - 4096x1024 of float32 (4.98): 32x8, 8 5.23; 32x4, 8 5.21; 16 5.18; 128x1, 16 5.59; along the
      rows 256x1, 4 5.29; 2048x2048, 32x4, 8 5.26; 16 5.21; along the rows 256x1, 4 5.30
    - 4096x2048 of float32 (8.58): 32x4, 16 9.41; along the rows 256x1, 4 8.89; 128x1, 4 8.91
    - 4096x4096 of float32 in halves (15.72): along the rows 256x1, 4 16.23; 128x1, 4 16.15
    - 4096x1024 of bfloat16 (3.49): 128x1, 4 3.51; 8 3.48; 8192x1024 (5.92): 4 5.63; 8 5.36
    """
    wide = dtype == "float32"
    along = wide and size > 2**24
    if along:
        columns_at_most, most = 256 if interleaved else 128, 4
    elif wide:
        columns_at_most, most = (128, 3) if size <= 2**22 else (32, 16)
    else:
        columns_at_most, most = 256, 4 if size <= 2**22 else 8
    across = -(-accesses // columns_at_most)
    columns = -(-accesses // across)
    lines = -(-128 // columns)
    rows = in_turn(-(-seq_len // lines), across, most)

    bits = max(1, (accesses - 1).bit_length())
    pairs = vector // 2 if interleaved else vector
    factored = size <= FACTORED_BYTES[dtype] and seq_len <= FACTORED_ROWS
    if not factored or accesses * pairs > 1024:
        bits = 0
    return ShortConfig(columns, lines, vector, rows, along, bits)
