"""What the cases share: random inputs, and the formulas in float64.

The formulas have nothing in common with the references: no float32, sums over axes in place of
means over rows, and quotients in place of products with reciprocal roots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = [
    "Spec",
    "at_most",
    "float64_layer_norm",
    "float64_rms_norm",
    "per_token",
    "random_inputs",
    "rounded",
    "rounded_like",
]

Spec = tuple[tuple[int, ...], torch.dtype]
"""A tensor's shape and dtype."""


def random_inputs(
    **specs: Spec,
) -> Callable[[torch.device, torch.Generator], dict[str, Any]]:
    """What draws standard normal tensors of these shapes and dtypes, anew at each call."""

    def draw(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        return {
            name: torch.randn(shape, device=device, generator=generator).to(dtype)
            for name, (shape, dtype) in specs.items()
        }

    return draw


def at_most(specs: Mapping[str, Spec | None]) -> dict[str, Spec]:
    """``specs`` without those that are None."""
    return {name: spec for name, spec in specs.items() if spec is not None}


def _mean(values: torch.Tensor, axes: int) -> torch.Tensor:
    over = tuple(range(-axes, 0))
    return values.sum(over, keepdim=True) / math.prod(values.shape[values.dim() - axes :])


def float64_rms_norm(
    x: torch.Tensor, axes: int, eps: float | None, weight: torch.Tensor | None, offset: float
) -> torch.Tensor:
    """``x / sqrt(mean(x**2) + eps) * (weight + offset)`` over the last ``axes``."""
    y = x / (_mean(x * x, axes) + (2.0**-23 if eps is None else eps)).sqrt()
    return y if weight is None else y * (weight + offset)


def float64_layer_norm(x: torch.Tensor, axes: int, eps: float) -> torch.Tensor:
    """``(x - mean) / sqrt(var + eps)`` over the last ``axes``."""
    centred = x - _mean(x, axes)
    return centred / (_mean(centred * centred, axes) + eps).sqrt()


def per_token(rows: torch.Tensor) -> torch.Tensor:
    """[B, N] as [B, 1, N]; [B, S, N] as it is."""
    return rows[:, None] if rows.dim() == 2 else rows


def rounded_like(total: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
    """``total`` rounded to the dtype that ``inputs`` had before they were made float64.

    An oracle is not told that dtype, and the sums that it normalizes are rounded to it. It is the
    narrowest that holds all of the inputs' values: a few random numbers tell. (Each number of
    float16 with 8 significant bits is one of bfloat16 too, so where there are one or two elements
    this may take the one for the other.)
    """
    for dtype in (torch.bfloat16, torch.float16):
        if all(bool((one.to(dtype).double() == one).all()) for one in inputs):
            return total.float().to(dtype).double()
    return total.float().double()


def rounded(total: torch.Tensor) -> torch.Tensor:
    """``total``, for baselines: inductor keeps a sum in float32 where the kernel that makes it also
    reads it, and its norm would be that of another number than eager's. Taken for integers and
    back, it is rounded there too (by inductor's Triton code; its C++ code leaves that out)."""
    return total.view(torch.int16).view(total.dtype) if total.element_size() == 2 else total
