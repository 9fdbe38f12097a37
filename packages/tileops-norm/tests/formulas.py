"""The formulas of the row ops in float64, each with a bound of what float32 arithmetic may add.

A bound is elementwise and derived, with ``U`` one rounding to float32: a chain of ``L`` additions
is off by ``L * U`` of the sum of magnitudes, a root halves a relative error, and ten roundings are
left for quotients, products and the reciprocal root. No order of summing that PyTorch or the
kernels use has a chain of more than 100 additions.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

U = 2.0**-24

HALVES = [torch.float16, torch.bfloat16]
DTYPES = [*HALVES, torch.float32]


class Bounded(NamedTuple):
    """The exact value, and how far float32 arithmetic may be off."""

    value: torch.Tensor
    bound: torch.Tensor


def rand(*shape: int, dtype: torch.dtype, mean: float = 0.0, spread: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, dtype=torch.float64) * spread + mean).to(dtype)


def _chain(v: torch.Tensor, axes: int) -> int:
    return min(math.prod(v.shape[v.dim() - axes :]), 100)


def rms_norm(
    v: torch.Tensor, axes: int, eps: float | None, weight: Any = None, offset: float = 0.0
) -> Bounded:
    v = v.double()
    over = tuple(range(-axes, 0))
    y = v / (v.pow(2).mean(over, keepdim=True) + (2.0**-23 if eps is None else eps)).sqrt()
    if weight is not None:
        y = y * (weight.double() + offset)
    return Bounded(y, y.abs() * (_chain(v, axes) / 2 + 10) * U)


def layer_norm(
    v: torch.Tensor, axes: int, eps: float, weight: Any = None, bias: Any = None
) -> Bounded:
    """``weight`` and ``bias`` may be of any shape that is broadcast."""
    v = v.double()
    over = tuple(range(-axes, 0))
    weight = torch.ones(()) if weight is None else weight
    bias = torch.zeros(()) if bias is None else bias
    centred = v - v.mean(over, keepdim=True)
    rstd = 1 / (centred.pow(2).mean(over, keepdim=True) + eps).sqrt()
    normal = centred * rstd
    product = normal * weight.double()
    # The mean's own error, in standard deviations: large where the mean is, whatever is done.
    moved = (_chain(v, axes) + 2) * U * v.abs().mean(over, keepdim=True) * rstd
    bound = weight.double().abs() * (moved + moved * moved)
    bound = bound + product.abs() * (_chain(v, axes) / 2 + 10) * U
    return Bounded(product + bias.double(), bound + 2 * U * (product.abs() + bias.double().abs()))


def check(actual: torch.Tensor, expected: Bounded, dtype: torch.dtype) -> None:
    """``actual`` is contiguous, of ``dtype``, and the value, within its bound, rounded once."""
    value, bound = expected
    assert (actual.shape, actual.dtype) == (value.shape, dtype)
    assert actual.is_contiguous()
    found = torch.finfo(dtype)
    # Half a step: of the value's, or where that is subnormal of the smallest.
    half = (value.abs() + bound) * found.eps / 2 + found.smallest_normal * found.eps / 2
    # NaN where it is due and only there: a comparison with NaN is false.
    assert torch.equal(actual.isnan(), value.isnan())
    off = (actual.double() - value).abs() - (bound + half)
    off = off[~value.isnan()]
    assert not off.numel() or float(off.max()) <= 0
