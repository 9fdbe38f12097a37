"""Adaptive LayerNorm: compile cases, and what PyTorch does in several steps.

PyTorch's steps are taken in float32, as the models do that care: in half precision each would
round, and the result be further from the formula than the entry allows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.norm.ada_layer_norm import AdaLayerNormFwdOp
from tileops.norm.ada_layer_norm_zero import AdaLayerNormZeroFwdOp
from tileops.norm.contracts.cases import (
    Spec,
    float64_layer_norm,
    per_token,
    random_inputs,
    rounded,
    rounded_like,
)

__all__: list[str] = []


def _ada_oracle(
    op: Any, *, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    return float64_layer_norm(x, 1, op.eps) * (1 + per_token(scale)) + per_token(shift)


def _zero_oracle(
    op: AdaLayerNormZeroFwdOp,
    *,
    x: torch.Tensor,
    residual: torch.Tensor,
    gate: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    total = rounded_like(residual + per_token(gate) * x, x, residual, gate)
    return _ada_oracle(op, x=total, scale=scale, shift=shift), total


def _case(
    op: Any, label: str, size: tuple[int, int, int], dtype: torch.dtype, **ranks: int
) -> None:
    """``ranks`` of the modulations: 2 is one row a sample, 3 one a token."""
    batch, _, n = size
    rows = ("x",) if op is AdaLayerNormFwdOp else ("x", "residual")
    specs: dict[str, Spec] = dict.fromkeys(rows, (size, dtype))
    specs |= {name: ((batch, n) if rank == 2 else size, dtype) for name, rank in ranks.items()}
    oracle = _ada_oracle if op is AdaLayerNormFwdOp else _zero_oracle
    register(CompileCase(op, label, {"eps": 1e-6}, random_inputs(**specs), oracle))


_case(AdaLayerNormFwdOp, "float32-per-sample", (2, 5, 129), torch.float32, scale=2, shift=2)
_case(AdaLayerNormFwdOp, "bfloat16-per-token", (3, 4, 96), torch.bfloat16, scale=3, shift=3)
_case(AdaLayerNormFwdOp, "float16-mixed", (2, 7, 64), torch.float16, scale=2, shift=3)
_case(
    AdaLayerNormZeroFwdOp,
    "float32-per-sample",
    (2, 5, 129),
    torch.float32,
    gate=2,
    scale=2,
    shift=2,
)
_case(AdaLayerNormZeroFwdOp, "bfloat16-mixed", (3, 4, 96), torch.bfloat16, gate=3, scale=2, shift=3)
_case(AdaLayerNormZeroFwdOp, "float16-mixed", (2, 7, 64), torch.float16, gate=2, scale=3, shift=2)


def _torch_ada(op: Any, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    y = functional.layer_norm(x.float(), x.shape[-1:], eps=op.eps)
    return (y * (1 + per_token(scale).float()) + per_token(shift).float()).to(x.dtype)


def _torch_zero(
    op: AdaLayerNormZeroFwdOp,
    x: torch.Tensor,
    residual: torch.Tensor,
    gate: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    # The one operator that multiplies and adds without rounding in between.
    added = torch.addcmul(residual, per_token(gate), x)
    return _torch_ada(op, rounded(added), scale, shift), added


register_baseline(Baseline(AdaLayerNormFwdOp, _torch_ada))
register_baseline(Baseline(AdaLayerNormZeroFwdOp, _torch_zero))
