"""RMSNorm: compile cases, and PyTorch's own."""

from __future__ import annotations

import torch
from torch.nn import functional

from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.norm.contracts.cases import at_most, float64_rms_norm, random_inputs
from tileops.norm.rms_norm import RMSNormFwdOp

__all__ = ["torch_rms_norm"]


def _oracle(
    op: RMSNormFwdOp, *, x: torch.Tensor, weight: torch.Tensor | None = None
) -> torch.Tensor:
    return float64_rms_norm(x, len(op.normalized_shape), op.eps, weight, op.weight_offset)


def _case(
    label: str,
    dtype: torch.dtype,
    weight_dtype: torch.dtype | None,
    rows: tuple[int, ...],
    normalized_shape: tuple[int, ...],
    eps: float | None = None,
    weight_offset: float = 0.0,
) -> None:
    specs = {
        "x": ((*rows, *normalized_shape), dtype),
        "weight": None if weight_dtype is None else (normalized_shape, weight_dtype),
    }
    params = {"normalized_shape": normalized_shape, "eps": eps, "weight_offset": weight_offset}
    inputs = random_inputs(**at_most(specs))
    register(CompileCase(RMSNormFwdOp, label, params, inputs, _oracle))


_case("float32", torch.float32, torch.float32, (3, 5), (129,))
_case("bfloat16-weight-float32", torch.bfloat16, torch.float32, (7,), (320,), 1e-6)
_case("float16-no-weight-two-axes", torch.float16, None, (2, 3), (6, 32))
_case("bfloat16-weight-offset", torch.bfloat16, torch.bfloat16, (5,), (96,), 1e-6, 1.0)


def torch_rms_norm(
    x: torch.Tensor,
    normalized_shape: tuple[int, ...],
    weight: torch.Tensor | None,
    eps: float | None,
    weight_offset: float,
) -> torch.Tensor:
    """PyTorch's own; with an offset as Gemma's module has it, in float32."""
    eps = 2.0**-23 if eps is None else eps
    if weight is None or weight_offset == 0.0:
        return functional.rms_norm(x, normalized_shape, weight, eps)
    shifted = weight.float() + weight_offset
    return functional.rms_norm(x.float(), normalized_shape, shifted, eps).to(x.dtype)


def _torch(op: RMSNormFwdOp, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    return torch_rms_norm(x, op.normalized_shape, weight, op.eps, op.weight_offset)


register_baseline(Baseline(RMSNormFwdOp, _torch))
