"""RMSNorm in plain PyTorch: what serves CPU tensors, and what the kernels are compared with."""

from __future__ import annotations

import torch

from tileops.norm.statistics import scale_by_rms, weighted

__all__ = ["rms_norm_reference"]


def rms_norm_reference(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    n: int,
    eps: float,
    weight_offset: float = 0.0,
) -> torch.Tensor:
    """``y = x / sqrt(mean(x**2) + eps) * (weight + weight_offset)`` over the last ``n`` elements.

    Sums, products and ``weight + weight_offset`` are float32, and the one rounding to ``x``'s
    dtype is the last step, as in the kernels. ``x`` is contiguous and any number of its trailing
    axes make up ``n``.
    """
    y = weighted(scale_by_rms(x.reshape(-1, n), eps), weight, None, weight_offset)
    return y.to(x.dtype).reshape(x.shape)
