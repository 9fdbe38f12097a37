"""The fused addition and RMSNorm in plain PyTorch: what serves CPU tensors."""

from __future__ import annotations

import torch

from tileops.norm.rms_norm.reference import rms_norm_reference

__all__ = ["fused_add_rms_norm_reference"]


def fused_add_rms_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    n: int,
    eps: float,
    weight_offset: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of ``x + residual``, and that sum, rounded to ``x``'s dtype before it is used."""
    added = x + residual
    return rms_norm_reference(added, weight, n, eps, weight_offset), added
