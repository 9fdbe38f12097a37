"""The statistics of rows in plain PyTorch, which the references share. All of it is float32."""

from __future__ import annotations

import torch

__all__ = ["center_and_scale", "scale_by_rms", "weighted"]


def scale_by_rms(rows: torch.Tensor, eps: float) -> torch.Tensor:
    """``rows / sqrt(mean(rows**2) + eps)`` over the last axis, in float32."""
    rows = rows.float()
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)


def center_and_scale(rows: torch.Tensor, eps: float) -> torch.Tensor:
    """``(rows - mean) / sqrt(var + eps)`` over the last axis, in float32.

    The variance is that of the differences from the mean, so a large mean cancels nothing there.
    """
    rows = rows.float()
    rows = rows - rows.mean(-1, keepdim=True)
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)


def weighted(
    rows: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    weight_offset: float = 0.0,
) -> torch.Tensor:
    """``rows * (weight + weight_offset) + bias`` in float32, without what is None."""
    n = rows.shape[-1]
    if weight is not None:
        rows = rows * (weight.reshape(n).float() + weight_offset)
    return rows if bias is None else rows + bias.reshape(n).float()
