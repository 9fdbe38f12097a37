"""The norm family's compile cases, and what its ops are measured against."""

from __future__ import annotations

import math
from typing import Any

import torch

from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.norm.channels import contracts as _channels  # noqa: F401  # registers its own
from tileops.norm.rms_norm import RMSNormFwdOp

__all__: list[str] = []


def _rms_norm_oracle(
    op: RMSNormFwdOp, *, x: torch.Tensor, weight: torch.Tensor | None = None
) -> torch.Tensor:
    axes = tuple(range(-len(op.normalized_shape), 0))
    eps = 2.0**-23 if op.eps is None else op.eps
    y = x / ((x * x).sum(axes, keepdim=True) / math.prod(op.normalized_shape) + eps).sqrt()
    return y if weight is None else y * weight


def _rms_norm_case(
    label: str,
    dtype: torch.dtype,
    weight_dtype: torch.dtype | None,
    rows: tuple[int, ...],
    normalized_shape: tuple[int, ...],
    eps: float | None = None,
) -> None:
    def inputs(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.randn(*shape, device=device, generator=generator).to(dtype)

        found = {"x": random(*rows, *normalized_shape, dtype=dtype)}
        if weight_dtype is not None:
            found["weight"] = random(*normalized_shape, dtype=weight_dtype)
        return found

    register(
        CompileCase(
            RMSNormFwdOp,
            label,
            {"normalized_shape": normalized_shape, "eps": eps},
            inputs,
            _rms_norm_oracle,
        )
    )


_rms_norm_case("float32", torch.float32, torch.float32, (3, 5), (129,))
_rms_norm_case("bfloat16-weight-float32", torch.bfloat16, torch.float32, (7,), (320,), 1e-6)
_rms_norm_case("float16-no-weight-two-axes", torch.float16, None, (2, 3), (6, 32))


def _torch_rms_norm(
    op: RMSNormFwdOp, x: torch.Tensor, weight: torch.Tensor | None = None
) -> torch.Tensor:
    eps = 2.0**-23 if op.eps is None else op.eps
    return torch.nn.functional.rms_norm(x, op.normalized_shape, weight, eps)


register_baseline(Baseline(RMSNormFwdOp, _torch_rms_norm))
