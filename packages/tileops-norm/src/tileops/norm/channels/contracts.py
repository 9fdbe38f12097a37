"""The channel norms' compile cases, and what they are measured against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from tileops.core import Op
from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.norm.channels import BatchNormFwdOp, GroupNormFwdOp, InstanceNormFwdOp

__all__: list[str] = []

Maybe = torch.Tensor | None


def _normalized(x: torch.Tensor, axes: tuple[int, ...], eps: float) -> torch.Tensor:
    mean = x.sum(axes, keepdim=True) / math.prod(x.shape[axis] for axis in axes)
    return (x - mean) / ((x - mean).pow(2).mean(axes, keepdim=True) + eps).sqrt()


def _by_channel(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return values.reshape(1, -1, *(1 for _ in x.shape[2:]))


def _affine(y: torch.Tensor, weight: Maybe, bias: Maybe) -> torch.Tensor:
    y = y if weight is None else y * _by_channel(y, weight)
    return y if bias is None else y + _by_channel(y, bias)


def _by_running(
    op: Any, x: torch.Tensor, running_mean: torch.Tensor, running_var: torch.Tensor
) -> torch.Tensor:
    deviation: torch.Tensor = (_by_channel(x, running_var) + op.eps).sqrt()
    return (x - _by_channel(x, running_mean)) / deviation


def _running(
    x: torch.Tensor, axes: tuple[int, ...], factor: Any, held: Mapping[str, Maybe]
) -> dict[str, torch.Tensor]:
    """The running statistics afterwards: of each instance, averaged over those that share one."""
    count = math.prod(x.shape[axis] for axis in axes)
    mean = x.sum(axes, keepdim=True) / count
    now = {
        "running_mean": mean,
        "running_var": (x - mean).pow(2).sum(axes, keepdim=True) / (count - 1),
    }
    return {
        name: before + factor * (now[name].mean(0).flatten() - before)
        for name, before in held.items()
        if before is not None
    }


def _group_norm_oracle(
    op: GroupNormFwdOp, *, x: torch.Tensor, weight: Maybe = None, bias: Maybe = None
) -> torch.Tensor:
    groups = x.unflatten(1, (op.num_groups, -1)).flatten(2)
    return _affine(_normalized(groups, (2,), op.eps).reshape(x.shape), weight, bias)


def _instance_norm_oracle(
    op: InstanceNormFwdOp,
    *,
    x: torch.Tensor,
    running_mean: Maybe = None,
    running_var: Maybe = None,
    weight: Maybe = None,
    bias: Maybe = None,
) -> Any:
    if not op.use_input_stats and running_mean is not None and running_var is not None:
        return _affine(_by_running(op, x, running_mean, running_var), weight, bias)
    axes = tuple(range(2, x.ndim))
    held = {"running_mean": running_mean, "running_var": running_var}
    y = _affine(_normalized(x, axes, op.eps), weight, bias)
    return {"y": y, **_running(x, axes, op.momentum, held)}


def _batch_norm_oracle(
    op: BatchNormFwdOp,
    *,
    x: torch.Tensor,
    running_mean: Maybe = None,
    running_var: Maybe = None,
    weight: Maybe = None,
    bias: Maybe = None,
    num_batches_tracked: Maybe = None,
) -> Any:
    if not op.training and running_mean is not None and running_var is not None:
        return _affine(_by_running(op, x, running_mean, running_var), weight, bias)
    axes = (0, *range(2, x.ndim))
    y = _affine(_normalized(x, axes, op.eps), weight, bias)
    counted: dict[str, torch.Tensor] = {}
    factor: Any = op.momentum
    if num_batches_tracked is not None:
        counted = {"num_batches_tracked": num_batches_tracked + 1}
        if factor is None:
            factor = 1 / counted["num_batches_tracked"]
    # As torch.nn.functional.batch_norm: an empty batch says nothing of the statistics.
    held = {"running_mean": running_mean, "running_var": running_var} if x.numel() else {}
    return {"y": y, **counted, **_running(x, axes, factor, held)}


ORACLES: Mapping[type[Op], Any] = {
    GroupNormFwdOp: _group_norm_oracle,
    InstanceNormFwdOp: _instance_norm_oracle,
    BatchNormFwdOp: _batch_norm_oracle,
}


def _case(
    op: type[Op],
    label: str,
    params: Mapping[str, Any],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    *,
    affine: torch.dtype | None = None,
    running: torch.dtype | None = None,
    counted: bool = False,
) -> None:
    def inputs(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.randn(*shape, device=device, generator=generator).to(dtype)

        found = {"x": random(*shape, dtype=dtype)}
        if running is not None:
            found["running_mean"] = random(shape[1], dtype=running)
            found["running_var"] = random(shape[1], dtype=running).square() + 0.5
        if affine is not None:
            found["weight"] = random(shape[1], dtype=affine)
            found["bias"] = random(shape[1], dtype=affine)
        if counted:
            found["num_batches_tracked"] = torch.tensor(6, device=device)
        return found

    register(CompileCase(op, label, dict(params), inputs, ORACLES[op]))


F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
_case(GroupNormFwdOp, "float32", {"num_groups": 3}, (2, 6, 5, 7), F32, affine=F32)
_case(
    GroupNormFwdOp, "bfloat16-affine-float32", {"num_groups": 8, "eps": 1e-6}, (3, 32, 33), BF16,
    affine=F32,
)  # fmt: skip
_case(GroupNormFwdOp, "float16-no-affine-no-space", {"num_groups": 2}, (5, 8), F16)
_case(InstanceNormFwdOp, "float32", {}, (2, 5, 9, 11), F32)
_case(
    InstanceNormFwdOp, "bfloat16-updates-float32", {"momentum": 0.3}, (3, 4, 17), BF16,
    affine=BF16, running=F32,
)  # fmt: skip
_case(
    InstanceNormFwdOp, "float16-by-running", {"use_input_stats": False}, (2, 3, 4, 5), F16,
    affine=F32, running=F32,
)  # fmt: skip
_case(BatchNormFwdOp, "float32-by-running", {}, (2, 5, 3, 4), F32, affine=F32, running=F32)
_case(
    BatchNormFwdOp, "bfloat16-updates-float32", {"training": True}, (4, 6, 7, 7), BF16,
    affine=F32, running=F32, counted=True,
)  # fmt: skip
_case(
    BatchNormFwdOp, "float16-averages", {"training": True, "momentum": None}, (9, 16), F16,
    affine=F16, running=F16, counted=True,
)  # fmt: skip
_case(BatchNormFwdOp, "float32-updates-nothing", {"training": True}, (5, 3, 8), F32)


def _torch_group_norm(
    op: GroupNormFwdOp, x: torch.Tensor, weight: Maybe = None, bias: Maybe = None
) -> torch.Tensor:
    return functional.group_norm(x, op.num_groups, weight, bias, op.eps)


def _torch_instance_norm(
    op: InstanceNormFwdOp,
    x: torch.Tensor,
    running_mean: Maybe = None,
    running_var: Maybe = None,
    weight: Maybe = None,
    bias: Maybe = None,
) -> torch.Tensor:
    return functional.instance_norm(
        x, running_mean, running_var, weight, bias, op.use_input_stats, op.momentum, op.eps
    )


def _torch_batch_norm(
    op: BatchNormFwdOp,
    x: torch.Tensor,
    running_mean: Maybe = None,
    running_var: Maybe = None,
    weight: Maybe = None,
    bias: Maybe = None,
    num_batches_tracked: Maybe = None,
) -> torch.Tensor:
    momentum = op.momentum
    if op.training and num_batches_tracked is not None:
        num_batches_tracked.add_(1)
        if momentum is None:
            momentum = 1.0 / float(num_batches_tracked)  # as torch.nn.BatchNorm2d, which waits too
    momentum = 0.0 if momentum is None else momentum
    return functional.batch_norm(
        x, running_mean, running_var, weight, bias, op.training, momentum, op.eps
    )


register_baseline(Baseline(GroupNormFwdOp, _torch_group_norm))
register_baseline(Baseline(InstanceNormFwdOp, _torch_instance_norm))
register_baseline(Baseline(BatchNormFwdOp, _torch_batch_norm))
