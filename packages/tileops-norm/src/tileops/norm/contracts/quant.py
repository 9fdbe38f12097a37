"""RMSNorm with fp8 results: compile cases, and what PyTorch does in several steps."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.norm.contracts.cases import (
    Spec,
    float64_rms_norm,
    random_inputs,
    rounded,
    rounded_like,
)
from tileops.norm.fused_add_rms_norm_per_token_quant import FusedAddRMSNormPerTokenQuantFwdOp
from tileops.norm.rms_norm_per_token_quant import RMSNormPerTokenQuantFwdOp

__all__: list[str] = []

QuantOp = RMSNormPerTokenQuantFwdOp | FusedAddRMSNormPerTokenQuantFwdOp
Pair = tuple[torch.Tensor, torch.Tensor]


def _oracle(op: QuantOp, *, x: torch.Tensor, weight: torch.Tensor) -> Pair:
    """``y`` is the quotient before it is rounded to fp8: the entry's tolerance is half a step."""
    axes = len(op.normalized_shape)
    norm = float64_rms_norm(x, axes, op.eps, weight, op.weight_offset)
    bound = norm.abs().amax(tuple(range(-axes, 0)), keepdim=True)
    if op.scale_ub is not None:
        bound = torch.minimum(bound, torch.full_like(bound, op.scale_ub))
    scale = torch.maximum(bound, torch.full_like(bound, 1 / 512)) / 448
    scale_of_row = scale.reshape(*x.shape[: x.dim() - axes], 1)
    return (norm / scale).clamp(-448, 448), scale_of_row


def _fused_oracle(
    op: FusedAddRMSNormPerTokenQuantFwdOp,
    *,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    total = rounded_like(x + residual, x, residual)
    return (*_oracle(op, x=total, weight=weight), total)


def _case(
    op: Any,
    label: str,
    rows: tuple[int, ...],
    normalized_shape: tuple[int, ...],
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    **params: Any,
) -> None:
    fused = op is FusedAddRMSNormPerTokenQuantFwdOp
    names = ("x", "residual") if fused else ("x",)
    specs: dict[str, Spec] = dict.fromkeys(names, ((*rows, *normalized_shape), dtype))
    specs["weight"] = (normalized_shape, weight_dtype)
    given = {"normalized_shape": normalized_shape, **params}
    oracle = _fused_oracle if fused else _oracle
    register(CompileCase(op, label, given, random_inputs(**specs), oracle))


_float16, _bfloat16, _float32 = torch.float16, torch.bfloat16, torch.float32
for _op, _inplace in (
    (RMSNormPerTokenQuantFwdOp, {}),
    (FusedAddRMSNormPerTokenQuantFwdOp, {"inplace": True}),
):
    _case(_op, "float32", (3, 5), (129,), _float32, _float32)
    _case(_op, "bfloat16-bounded", (7,), (320,), _bfloat16, _float32, scale_ub=2.0, **_inplace)
    _case(_op, "float16-two-axes", (2, 3), (6, 32), _float16, _float16, weight_offset=1.0)


def _torch(op: QuantOp, x: torch.Tensor, weight: torch.Tensor) -> Pair:
    eps = 2.0**-23 if op.eps is None else op.eps
    shifted = weight.float() + op.weight_offset
    norm = functional.rms_norm(x.float(), op.normalized_shape, shifted, eps)
    axes = len(op.normalized_shape)
    bound = norm.flatten(-axes).abs().amax(-1, keepdim=True)
    if op.scale_ub is not None:
        bound = bound.clamp(max=op.scale_ub)
    scale = bound.clamp(min=1 / 512) / 448
    of_row = scale.reshape(*scale.shape[:-1], *(1 for _ in range(axes)))
    return (norm / of_row).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def _torch_fused(
    op: FusedAddRMSNormPerTokenQuantFwdOp,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    added = residual.add_(x) if op.inplace else x + residual
    return (*_torch(op, rounded(added), weight), added)


register_baseline(Baseline(RMSNormPerTokenQuantFwdOp, _torch))
register_baseline(Baseline(FusedAddRMSNormPerTokenQuantFwdOp, _torch_fused))
