"""Samples of one measure: median, spread, and when a difference is noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["median", "noise_floor", "spread", "verdict"]

median = statistics.median


def spread(samples: Sequence[float]) -> float:
    """The distance between the quartiles, as a part of the median."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / median(samples)


def noise_floor(first: Sequence[float], again: Sequence[float]) -> float:
    """How far apart two measurements of one thing may be, as a part of the smaller.

    It is what the medians of the same op, timed twice, differ by, or the larger of their spreads:
    two medians may agree by chance.
    """
    one, two = median(first), median(again)
    return max(abs(one - two) / min(one, two), spread(first), spread(again))


def verdict(ratio: float, noise: float) -> str:
    """``"tie"``, ``"faster"`` or ``"slower"`` for our time over another's."""
    if max(ratio, 1 / ratio) - 1 <= noise:
        return "tie"
    return "faster" if ratio < 1 else "slower"
