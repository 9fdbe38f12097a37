"""Rotary embedding in float64, pair by pair, and what its results are held to."""

from __future__ import annotations

import torch

ALLOWED = {torch.float32: 0.0, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> torch.Tensor:
    """x, [*B, S, H, D], turned by cos and sin, [*B or none, S, pairs]; all on the CPU."""
    x = x.detach().cpu().double()
    y, pairs = x.clone(), cos.shape[-1]
    for i in range(pairs):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, pairs + i)
        a, b, c, s = x[..., first], x[..., second], cos[..., i, None], sin[..., i, None]
        y[..., first], y[..., second] = a * c - b * s, b * c + a * s
    return y


def angles(
    position: torch.Tensor, rotary_dim: int, base: float, scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    exact = [1 / base ** (2 * i / rotary_dim) for i in range(rotary_dim // 2)]
    f = torch.tensor(exact, dtype=torch.float64)
    angle = position.cpu().double()[..., None] * f
    return angle.cos() * scale, angle.sin() * scale


def assert_rotated(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Within one rounding of the dtype and what the entries allow float32 arithmetic: 6.2e-6."""
    torch.testing.assert_close(
        found.cpu().double(), exact, rtol=ALLOWED[found.dtype], atol=6.2e-6, equal_nan=True
    )
