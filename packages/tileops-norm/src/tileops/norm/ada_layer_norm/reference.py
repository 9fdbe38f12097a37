"""Adaptive LayerNorm in plain PyTorch: what serves CPU tensors."""

from __future__ import annotations

import torch

from tileops.norm.statistics import center_and_scale

__all__ = ["ada_layer_norm_reference", "modulation"]


def modulation(rows: torch.Tensor) -> torch.Tensor:
    """[B, N] or [B, S, N] in float32, as it is broadcast over [B, S, N]."""
    return (rows.unsqueeze(1) if rows.dim() == 2 else rows).float()


def ada_layer_norm_reference(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float
) -> torch.Tensor:
    """``y = (x - mean) / sqrt(var + eps) * (1 + scale) + shift``, the statistics over ``N``.

    All of it is float32, and the one rounding to ``x``'s dtype is the last step.
    """
    y = center_and_scale(x, eps) * (1 + modulation(scale)) + modulation(shift)
    return y.to(x.dtype)
