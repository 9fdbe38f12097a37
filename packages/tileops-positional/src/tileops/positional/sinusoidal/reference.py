"""The sinusoidal table in plain PyTorch: what a traced call is, and what the kernel is held to.

Elementwise from two ranges, so that a compiler folds it into whatever reads it. Angles are float64:
in float32 they would lose a bit for each doubling of the position.
"""

from __future__ import annotations

import math

import torch

__all__ = ["sinusoidal_reference"]


def sinusoidal_reference(
    seq_len: int,
    d_model: int,
    base: float,
    interleaved: bool,
    dtype: torch.dtype,
    device: torch.device | None,
) -> torch.Tensor:
    """``sin`` and ``cos`` of ``i / base**(2 k / d_model)``, rounded once to ``dtype``."""
    column = torch.arange(d_model, device=device, dtype=torch.float64)
    if interleaved:
        pair, is_cosine = torch.floor(column / 2), column % 2
    else:
        half = d_model // 2
        is_cosine = (column >= half).double()
        pair = column - half * is_cosine
    frequency = torch.pow(base, pair * (-2 / d_model))
    position = torch.arange(seq_len, device=device, dtype=torch.float64)
    # cos(x) = sin(x + pi / 2): one function an element, where taking a half of each would cost two.
    # PyTorch indexes no fake tensor of a device that it was built without: hence no x[:, None].
    return torch.sin(position.unsqueeze(1) * frequency + is_cosine * (math.pi / 2)).to(dtype)
