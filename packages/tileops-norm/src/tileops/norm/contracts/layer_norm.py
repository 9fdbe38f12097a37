"""LayerNorm: compile cases, and PyTorch's own."""

from __future__ import annotations

import torch
from torch.nn import functional

from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.norm.contracts.cases import at_most, float64_layer_norm, random_inputs
from tileops.norm.layer_norm import LayerNormFwdOp

__all__: list[str] = []


def _oracle(
    op: LayerNormFwdOp,
    *,
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    y = float64_layer_norm(x, len(op.normalized_shape), op.eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def _case(
    label: str,
    dtype: torch.dtype,
    weight_dtype: torch.dtype | None,
    bias_dtype: torch.dtype | None,
    rows: tuple[int, ...],
    normalized_shape: tuple[int, ...],
    eps: float = 1e-5,
) -> None:
    specs = {
        "x": ((*rows, *normalized_shape), dtype),
        "weight": None if weight_dtype is None else (normalized_shape, weight_dtype),
        "bias": None if bias_dtype is None else (normalized_shape, bias_dtype),
    }
    params = {"normalized_shape": normalized_shape, "eps": eps}
    inputs = random_inputs(**at_most(specs))
    register(CompileCase(LayerNormFwdOp, label, params, inputs, _oracle))


_case("float32", torch.float32, torch.float32, torch.float32, (3, 5), (129,))
_case("bfloat16-float32-affine", torch.bfloat16, torch.float32, torch.float32, (7,), (320,), 1e-6)
_case("float16-bias-alone-two-axes", torch.float16, None, torch.float16, (2, 3), (6, 32))


def _torch(
    op: LayerNormFwdOp,
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    return functional.layer_norm(x, op.normalized_shape, weight, bias, op.eps)


register_baseline(Baseline(LayerNormFwdOp, _torch))
