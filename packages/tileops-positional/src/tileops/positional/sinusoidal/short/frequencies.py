"""The frequencies of a short table, as its program takes them: float64, in turns a position.

Pure Python: no torch, no TileLang.
"""

import math
import struct

from tileops.positional.sinusoidal.configs import NUMBER_BITS

__all__ = ["RATIOS", "frequency_words", "made_numbers"]

#: How many ratios a program that makes frequencies is launched with: a thread's number in its row,
#: and up to eight pairs of its own.
RATIOS = NUMBER_BITS + 3


def frequency_words(d_model: int, base: float) -> tuple[int, ...]:
    """The frequency of each pair, as the int64 that has the same bits."""
    pairs = d_model // 2
    turns = [base ** (-2 * k / d_model) / (2 * math.pi) for k in range(pairs)]
    return struct.unpack(f"<{pairs}q", struct.pack(f"<{pairs}d", *turns))


def made_numbers(d_model: int, base: float, pairs: int) -> dict[str, float]:
    """What a thread of ``pairs`` pairs makes its frequencies of: ``unit``, the frequency of pair 0;
    ``after``, the first one of the next thread; and ``rb``, the ratio of two frequencies that are
    ``2**b`` pairs apart.
    """
    unit = 1 / (2 * math.pi)
    numbers = {"unit": unit, "after": unit * _ratio(d_model, base, pairs)}
    return numbers | {f"r{b}": _ratio(d_model, base, 2**b) for b in range(RATIOS)}


def _ratio(d_model: int, base: float, pairs: int) -> float:
    # That of more pairs than there are is not asked for, and may be more than a float holds.
    return float(base ** (-2 * pairs / d_model)) if 2 * pairs < d_model else 1.0
