"""RMSNorm with fp8 results in plain PyTorch: what serves CPU tensors."""

from __future__ import annotations

import torch

from tileops.norm.statistics import scale_by_rms, weighted

__all__ = ["rms_norm_per_token_quant_reference"]

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
"""448, the largest number of float8_e4m3fn, which has no infinity."""


def rms_norm_per_token_quant_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    n: int,
    eps: float,
    weight_offset: float = 0.0,
    scale_ub: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm in float32, divided by a scale a row and rounded to fp8; and the scales, [rows, 1].

    ``scale = max(min(max(abs(norm)), scale_ub), 1 / 512) / 448``. A NaN, which an infinity in ``x``
    leads to as well, makes its row's scale and all values of the row NaN.
    """
    norm = weighted(scale_by_rms(x.reshape(-1, n), eps), weight, None, weight_offset)
    # amax and clamp hand NaN on, as the kernels must.
    greatest = norm.abs().amax(-1, keepdim=True)
    if scale_ub is not None:
        greatest = greatest.clamp(max=scale_ub)
    scale = greatest.clamp(min=1 / 512) / FP8_MAX
    y = (norm / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)
    return y.reshape(x.shape), scale
