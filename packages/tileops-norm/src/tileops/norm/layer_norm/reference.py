"""LayerNorm in plain PyTorch: what serves CPU tensors, and what the kernels are compared with."""

from __future__ import annotations

import torch

from tileops.norm.statistics import center_and_scale, weighted

__all__ = ["layer_norm_reference"]


def layer_norm_reference(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    n: int,
    eps: float,
) -> torch.Tensor:
    """``y = (x - mean) / sqrt(var + eps) * weight + bias`` over the last ``n`` elements.

    All of it is float32, and the one rounding to ``x``'s dtype is the last step, as in the
    kernels. ``x`` is contiguous and any number of its trailing axes make up ``n``.
    """
    y = weighted(center_and_scale(x.reshape(-1, n), eps), weight, bias)
    return y.to(x.dtype).reshape(x.shape)
