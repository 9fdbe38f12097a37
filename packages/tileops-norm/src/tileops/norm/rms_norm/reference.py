"""RMSNorm in plain PyTorch: what serves CPU tensors, and what the kernels are compared with."""

from __future__ import annotations

import torch

__all__ = ["rms_norm_reference"]


def rms_norm_reference(
    x: torch.Tensor, weight: torch.Tensor | None, n: int, eps: float
) -> torch.Tensor:
    """``y = x / sqrt(mean(x**2) + eps) * weight`` over the last ``n`` elements of each row.

    Sums and products are float32, and the one rounding to ``x``'s dtype is the last step, as in
    the kernels. ``x`` is contiguous and any number of its trailing axes make up ``n``.
    """
    rows = x.reshape(-1, n).float()
    scaled = rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        scaled = scaled * weight.reshape(n).float()
    return scaled.to(x.dtype).reshape(x.shape)
