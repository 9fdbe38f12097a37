"""The fused additions: compile cases of both branches, and what PyTorch does in two steps."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.norm.contracts.cases import (
    Spec,
    float64_layer_norm,
    float64_rms_norm,
    random_inputs,
    rounded,
    rounded_like,
)
from tileops.norm.contracts.rms_norm import torch_rms_norm
from tileops.norm.fused_add_layer_norm import FusedAddLayerNormFwdOp
from tileops.norm.fused_add_rms_norm import FusedAddRMSNormFwdOp

__all__: list[str] = []

Pair = tuple[torch.Tensor, torch.Tensor]


def _rms_oracle(
    op: FusedAddRMSNormFwdOp,
    *,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> Pair:
    total = rounded_like(x + residual, x, residual)
    axes = len(op.normalized_shape)
    return float64_rms_norm(total, axes, op.eps, weight, op.weight_offset), total


def _layer_oracle(
    op: FusedAddLayerNormFwdOp,
    *,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> Pair:
    total = rounded_like(x + residual, x, residual)
    y = float64_layer_norm(total, len(op.normalized_shape), op.eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias), total


def _case(
    op: Any,
    label: str,
    rows: tuple[int, ...],
    normalized_shape: tuple[int, ...],
    dtype: torch.dtype,
    affine: dict[str, torch.dtype],
    **params: Any,
) -> None:
    specs: dict[str, Spec] = dict.fromkeys(("x", "residual"), ((*rows, *normalized_shape), dtype))
    specs |= {name: (normalized_shape, held) for name, held in affine.items()}
    oracle = _rms_oracle if op is FusedAddRMSNormFwdOp else _layer_oracle
    given = {"normalized_shape": normalized_shape, **params}
    register(CompileCase(op, label, given, random_inputs(**specs), oracle))


_float16, _bfloat16, _float32 = torch.float16, torch.bfloat16, torch.float32
for _op, _more in ((FusedAddRMSNormFwdOp, {}), (FusedAddLayerNormFwdOp, {"bias": _float32})):
    _case(_op, "float32", (3, 5), (129,), _float32, {"weight": _float32, **_more})
    _case(
        _op,
        "bfloat16-in-place",
        (7,),
        (320,),
        _bfloat16,
        {"weight": _float32, **_more},
        eps=1e-6,
        inplace=True,
    )
    _case(_op, "float16-in-place-no-affine-two-axes", (2, 3), (6, 32), _float16, {}, inplace=True)
_case(
    FusedAddRMSNormFwdOp,
    "float16-weight-offset",
    (4,),
    (96,),
    _float16,
    {"weight": _float16},
    weight_offset=1.0,
)


def _added(op: Any, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return residual.add_(x) if op.inplace else x + residual


def _returned(op: Any, x: torch.Tensor, y: torch.Tensor, added: torch.Tensor) -> Pair:
    return (x.copy_(y) if op.inplace else y), added


def _torch_rms(
    op: FusedAddRMSNormFwdOp,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> Pair:
    added = _added(op, x, residual)
    y = torch_rms_norm(rounded(added), op.normalized_shape, weight, op.eps, op.weight_offset)
    return _returned(op, x, y, added)


def _torch_layer(
    op: FusedAddLayerNormFwdOp,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> Pair:
    added = _added(op, x, residual)
    y = functional.layer_norm(rounded(added), op.normalized_shape, weight, bias, op.eps)
    return _returned(op, x, y, added)


register_baseline(Baseline(FusedAddRMSNormFwdOp, _torch_rms))
register_baseline(Baseline(FusedAddLayerNormFwdOp, _torch_layer))
