"""The fused addition and LayerNorm in plain PyTorch: what serves CPU tensors."""

from __future__ import annotations

import torch

from tileops.norm.layer_norm.reference import layer_norm_reference

__all__ = ["fused_add_layer_norm_reference"]


def fused_add_layer_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    n: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """LayerNorm of ``x + residual``, and that sum, rounded to ``x``'s dtype before it is used."""
    added = x + residual
    return layer_norm_reference(added, weight, bias, n, eps), added
