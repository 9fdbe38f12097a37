"""What a roofline reads of a call, and the functions that count work from it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

from tileops.manifest.vocabulary import ITEMSIZE

__all__ = ["ROOFLINE_HELPERS", "TensorFacts"]


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """A tensor's shape and dtype and, where a workload generates it, its values in row order.

    ``scale`` is the standard deviation of its numbers, where they are random.
    """

    shape: tuple[int, ...]
    dtype: str
    values: Sequence[int] | None = None
    scale: float = 1.0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


def _itemsize(dtype: str) -> int:
    return ITEMSIZE[dtype]


def _nbytes(tensor: TensorFacts | None) -> int:
    return 0 if tensor is None else tensor.nbytes


def _values(tensor: TensorFacts) -> tuple[int, ...]:
    if tensor.values is None:
        raise ValueError("the tensor has no values here: the workload names no generator for it")
    return tuple(tensor.values)


def _lengths(tensor: TensorFacts) -> tuple[int, ...]:
    """Return the lengths between cumulative starts (``cu_seqlens``)."""
    return tuple(after - before for before, after in itertools.pairwise(_values(tensor)))


def _pages(lengths: Sequence[int], page_size: int) -> int:
    """Return how many pages of ``page_size`` hold sequences of these lengths."""
    return sum(-(-length // page_size) for length in lengths)


def _pairs(
    queries: int | Sequence[int],
    keys: int | Sequence[int],
    causal: bool = False,
    left: int | None = None,
    right: int | None = None,
) -> int:
    """Return how many (query, key) pairs attend, the last query aligned with the last key.

    A query at key position ``p`` sees ``p - left`` to ``p + right``; a causal one nothing after
    ``p``. None (and, as flash-attention has it, -1) is no bound. Sequences are summed over.
    """
    count = max(len(one) if not isinstance(one, int) else 1 for one in (queries, keys))
    ones = [queries] * count if isinstance(queries, int) else queries
    twos = [keys] * count if isinstance(keys, int) else keys
    back = None if left is None or left < 0 else left
    ahead = 0 if causal else (None if right is None or right < 0 else right)
    return sum(_one_pairs(q, k, back, ahead) for q, k in zip(ones, twos, strict=True))


def _one_pairs(queries: int, keys: int, back: int | None, ahead: int | None) -> int:
    """Sum, over queries at positions ``keys - queries + i``, the length of the visible range."""
    if back is None and ahead is None:
        return queries * keys
    start = keys - queries
    # Both ends of the visible range are clipped lines; each sum has a closed form.
    ends = queries * keys if ahead is None else _clipped(start + ahead + 1, queries, keys)
    begins = 0 if back is None else _clipped(start - back, queries, keys)
    return max(0, ends - begins)


def _clipped(first: int, count: int, limit: int) -> int:
    """Return the sum of ``min(max(first + i, 0), limit)`` for ``i`` below ``count``."""
    skipped = min(max(0, -first), count)
    rising = max(0, min(count, limit - first) - skipped)
    lowest = first + skipped
    return rising * lowest + rising * (rising - 1) // 2 + max(0, count - skipped - rising) * limit


ROOFLINE_HELPERS: Final[Mapping[str, object]] = {
    "_itemsize": _itemsize,
    "_nbytes": _nbytes,
    "_values": _values,
    "_lengths": _lengths,
    "_pages": _pages,
    "_pairs": _pairs,
}
"""What the functions that only rooflines call compile to."""
