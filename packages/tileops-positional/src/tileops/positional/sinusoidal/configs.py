"""How the sinusoidal programs are laid out. Pure Python: no torch, no TileLang."""

import math
import re
from dataclasses import dataclass

from tileops.positional.accesses import ACCESS_BYTES, ITEMSIZE, in_turn, spread

__all__ = ["ShortConfig", "SinusoidalConfig", "choose_config", "may_overlap"]

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


@dataclass(frozen=True)
class ShortConfig:
    """As :class:`SinusoidalConfig`, for tables whose first store is what counts.

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
    overlap: bool


def choose_config(
    seq_len: int, d_model: int, interleaved: bool, dtype: str, arch: str
) -> SinusoidalConfig | ShortConfig:
    """The layout for ``seq_len`` rows of ``d_model``, in which no access has sines of one half and
    cosines of the other.

    Rows of a block, in µs on an H200 (y.fill_ of the same bytes): 65536x2048 of float32 (159.2), 16
    120.8, 8 118.5; of bfloat16 (80.1), 62.5 and 60.5.
    """
    # Where the halves are apart, a thread has an access in each.
    width = d_model if interleaved else d_model // 2
    vector = math.gcd(width, ACCESS_BYTES // ITEMSIZE[dtype])
    threads, across = spread(width // vector)
    size = seq_len * d_model * ITEMSIZE[dtype]
    if size <= SHORT_BYTES:
        return ShortConfig(threads, vector, _short_rows(size), may_overlap(arch))
    return SinusoidalConfig(threads, vector, in_turn(seq_len, across, 8))


def _short_rows(size: int) -> int:
    """Rows of a block of a short table of ``size`` bytes.

    In µs on an H200, medians of replays of 200 calls in a CUDA graph; in brackets what those took
    whose table was in L2. Overlapping: 512x512 of float32 in halves, 1 row 1.29 (0.94), 2 1.10
    (0.91); 1024x1024 of float32, 2.08 (1.67), 1.73 (1.65); 1500x1280 of float16, 2.32 (2.12), 1.85
    (1.58), 4 1.92 (2.03); that in halves, 2 1.85 (1.83), 4 3.15 (3.22); 4096x1024 of bfloat16, 4
    2.66 (2.63), 8 3.55 (3.50). Not overlapping, 1500x1280: 1 2.50, 2 2.46, 4 2.40. The other
    program took 1.90, 2.66, 2.64, 3.24 and 3.72 cold, y.fill_ 1.42, 2.19, 2.13, 2.11 and 3.47. They
    are of a short program that had its angles from float64, and triggered before it waited.
    """
    return 2 if size <= 2**22 else 4


def may_overlap(arch: str) -> bool:
    """Whether kernels of an architecture may start before the kernel before has ended."""
    found = re.match(r"sm_(\d+)", arch)
    return found is not None and int(found[1]) >= 90
