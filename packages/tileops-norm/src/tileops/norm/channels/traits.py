"""What a channel norm's program is built for besides its layout."""

from __future__ import annotations

from dataclasses import dataclass

from tileops.norm.channels.shapes import Mode

__all__ = ["Traits"]


@dataclass(frozen=True)
class Traits:
    """Which tensors there are, and of which dtypes, by TileLang's names.

    Attributes:
        mode: what is normalized together.
        dtype: of x and y.
        affine: of weight and bias; "" where there are none.
        weighted, biased: whether weight and bias are there.
        running: of the running statistics; "" where there are none.
        counted: whether num_batches_tracked is there and counts on.
        averaged: whether the running statistics are averages over the counted batches.
    """

    mode: Mode
    dtype: str
    affine: str = ""
    weighted: bool = False
    biased: bool = False
    running: str = ""
    counted: bool = False
    averaged: bool = False
