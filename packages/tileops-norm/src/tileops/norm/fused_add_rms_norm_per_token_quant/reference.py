"""The fused addition and RMSNorm with fp8 results in plain PyTorch: what serves CPU tensors."""

from __future__ import annotations

import torch

from tileops.norm.rms_norm_per_token_quant.reference import rms_norm_per_token_quant_reference

__all__ = ["fused_add_rms_norm_per_token_quant_reference"]


def fused_add_rms_norm_per_token_quant_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    n: int,
    eps: float,
    weight_offset: float = 0.0,
    scale_ub: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantized RMSNorm of ``x + residual``; its scales; and the sum.

    The sum is rounded to ``x``'s dtype before the statistics.
    """
    added = x + residual
    y, scale = rms_norm_per_token_quant_reference(added, weight, n, eps, weight_offset, scale_ub)
    return y, scale, added
