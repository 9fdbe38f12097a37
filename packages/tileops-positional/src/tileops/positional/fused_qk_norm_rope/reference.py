"""The fused op in plain PyTorch: what serves CPU tensors, and what the kernel is held to."""

from __future__ import annotations

import torch

from tileops.positional.rope.reference import turned

__all__ = ["normalized_and_rotated"]


def normalized_and_rotated(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool,
) -> torch.Tensor:
    """``rope(x / sqrt(mean(x**2) + eps) * weight)``, x being [*B, S, H, D].

    All of it is float32, and the one rounding to ``x``'s dtype is the last step, as in the kernel.
    """
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight.float()
    rotary = 2 * cos.shape[-1]
    parts = [turned(y[..., :rotary], cos, sin, interleaved), y[..., rotary:]]
    return torch.cat(parts, -1).to(x.dtype)
