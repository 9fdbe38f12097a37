"""ALiBi in plain PyTorch: what a traced call is, and what the kernel is compared with.

Elementwise from two ranges, so that a compiler folds it into whatever reads it.
"""

from __future__ import annotations

import torch

__all__ = ["alibi_reference", "slopes"]


def slopes(num_heads: int, device: torch.device | None) -> torch.Tensor:
    """Each head's slope, float32, in the order of the heads."""
    power = 1 << (num_heads.bit_length() - 1)
    head = torch.arange(num_heads, device=device, dtype=torch.float32)
    # In steps of 4 / power, which is what twice the power of two goes by.
    steps = torch.where(head < power, 2 * head + 2, 2 * (head - power) + 1)
    return torch.exp2(steps * (-4 / power))


def alibi_reference(
    num_heads: int, seq_len: int, dtype: torch.dtype, device: torch.device | None
) -> torch.Tensor:
    """``bias[h, i, j] = -slope[h] * |i - j|``; float32, and one rounding to ``dtype``."""
    position = torch.arange(seq_len, device=device, dtype=torch.float32)
    # PyTorch indexes no fake tensor of a device that it was built without: hence no x[:, None].
    distance = (position.unsqueeze(1) - position).abs()
    return (slopes(num_heads, device).view(-1, 1, 1) * -distance).to(dtype)
