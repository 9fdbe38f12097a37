"""The gated addition and adaptive LayerNorm in plain PyTorch: what serves CPU tensors."""

from __future__ import annotations

import torch

from tileops.norm.ada_layer_norm.reference import ada_layer_norm_reference, modulation

__all__ = ["ada_layer_norm_zero_reference"]


def ada_layer_norm_zero_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    gate: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Adaptive LayerNorm of ``residual + gate * x``, and that sum.

    The product and the sum are float32, rounded once, to ``x``'s dtype, before the statistics.
    """
    added = (residual.float() + modulation(gate) * x.float()).to(x.dtype)
    return ada_layer_norm_reference(added, scale, shift, eps), added
