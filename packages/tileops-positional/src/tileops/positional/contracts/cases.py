"""What the positional ops' oracles and cases are made of.

The oracles are formulas in float64, with complex numbers where the references have real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tileops.core import Op
from tileops.core.contract import CompileCase, register

__all__ = ["case", "plain", "turn", "turn_all"]


def turn(x: torch.Tensor, factors: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x, [*B, S, H, D]: each pair as a complex number times its factor, [*B or none, S, pairs]."""
    rotary = 2 * factors.shape[-1]
    turned, rest = x[..., :rotary], x[..., rotary:]
    if interleaved:
        pairs = torch.view_as_complex(turned.unflatten(-1, (-1, 2)).contiguous())
    else:
        pairs = torch.complex(*turned.chunk(2, -1))
    turned = torch.view_as_real(pairs * factors[..., None, :])
    turned = turned.flatten(-2) if interleaved else turned.mT.flatten(-2)
    return torch.cat([turned, rest], -1)


def turn_all(op: Any, q: torch.Tensor, k: torch.Tensor | None, factors: torch.Tensor) -> Any:
    turned = [turn(x, factors, op.interleaved) for x in (q, k) if x is not None]
    return turned[0] if k is None else tuple(turned)


def plain(op: Any, width: int) -> torch.Tensor:
    rotary = getattr(op, "rotary_dim", None) or width
    return torch.logspace(0, 2 / rotary - 1, rotary // 2, op.base, dtype=torch.float64)


def case(
    op: type[Op],
    label: str,
    params: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    oracle: Callable[..., Any],
    *,
    positions: tuple[int, int] = (0, 1),
    rows: str | None = None,
    **dtypes: torch.dtype,
) -> None:
    """Inputs of these shapes: normal numbers, and ``position_ids`` in the range ``positions``."""

    def inputs(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, shape in shapes.items():
            if name == "position_ids":
                drawn = torch.randint(*positions, shape, device=device, generator=generator)
                found[name] = drawn.to(dtypes.get(name, torch.int64))
            else:
                drawn = torch.randn(shape, device=device, generator=generator)
                found[name] = drawn.to(dtypes.get(name, dtype))
        return found

    register(CompileCase(op, label, params, inputs, oracle, rows=rows))
