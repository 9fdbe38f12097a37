"""Rotary embedding in plain PyTorch: what serves CPU tensors, and what the kernels are held to."""

from __future__ import annotations

import math

import torch

from tileops.positional.angles import device_turns, turns
from tileops.positional.rope.frequencies import Rotation

__all__ = ["angles_of", "cached_angles", "place_of", "rotated", "turned"]


def place_of(length: int, position_ids: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """The position of each of a sequence's tokens, int64: [length], or as the position ids are."""
    if position_ids is None:
        return torch.arange(length, device=device)
    return position_ids.long()


def angles_of(rotation: Rotation, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, float32, of each pair: ``position``'s axes and one of the pairs.

    Where the rotation has rows, the first axis of ``position`` is gone.
    """
    # Tables that stay: a copy from the host could not be captured in a CUDA graph.
    step = device_turns(tuple(turns(rotation.frequencies)), position.device)
    if rotation.rows is None:
        by_pair = position[..., None]
    else:
        rows = device_turns(rotation.rows, position.device)
        by_pair = position.index_select(0, rows).movedim(0, -1)
    # Wraps modulo a turn: see tileops.positional.angles. Half a turn is 2**31.
    angle = ((by_pair * step) >> 32).double() * (math.pi * 2.0**-31)
    return (angle.cos() * rotation.scale).float(), (angle.sin() * rotation.scale).float()


def cached_angles(cache: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, float32, from the rows of ``cache``; NaN for a position out of it."""
    inside = (position >= 0) & (position < cache.shape[0])
    if cache.shape[0] == 0:
        rows = cache.new_full((*position.shape, cache.shape[1]), math.nan).float()
    else:
        rows = cache[position.clamp(0, cache.shape[0] - 1)].float()
    cos, sin = torch.where(inside[..., None], rows, math.nan).chunk(2, -1)
    return cos, sin


def turned(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> torch.Tensor:
    """The pairs of ``x``, [*B, S, H, R], turned in float32.

    ``cos`` and ``sin`` are [*B, S, R / 2], or [S, R / 2] for all sequences.
    """
    cos, sin, x = cos[..., None, :], sin[..., None, :], x.float()
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
    else:
        a, b = x.chunk(2, -1)
    parts = [a * cos - b * sin, b * cos + a * sin]
    return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)


def rotated(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, inplace: bool
) -> torch.Tensor:
    """``x``, [*B, S, H, D], its first pairs turned; what is left of each head stays as it is.

    The result is new, or ``x`` itself, written, where ``inplace``.
    """
    rotary = 2 * cos.shape[-1]
    y = x if inplace else x.clone(memory_format=torch.contiguous_format)
    y[..., :rotary] = turned(x[..., :rotary], cos, sin, interleaved).to(x.dtype)
    return y
