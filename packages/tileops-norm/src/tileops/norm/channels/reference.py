"""The channel norms in plain PyTorch: what serves CPU tensors, and what kernels are compared with.

Statistics, products and sums are float32, and the one rounding to ``x``'s dtype is the last step.
Variances are means of squared differences from the mean, so a large mean cancels nothing. Where
``x`` has no elements nothing is computed from it; what then becomes of running statistics is what
``torch.nn.functional`` leaves behind.
"""

from __future__ import annotations

import math

import torch

__all__ = ["batch_norm_reference", "group_norm_reference", "instance_norm_reference"]

Maybe = torch.Tensor | None


def group_norm_reference(
    x: torch.Tensor, weight: Maybe, bias: Maybe, num_groups: int, eps: float
) -> torch.Tensor:
    """Each of ``num_groups`` groups of a sample's channels by its own mean and biased variance."""
    groups = x.reshape(x.shape[0], num_groups, -1).float()
    mean = groups.mean(-1, keepdim=True)
    centred = groups - mean
    normalized = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return _affine(normalized.reshape(_flat(x)), weight, bias).to(x.dtype).reshape(x.shape)


def instance_norm_reference(
    x: torch.Tensor,
    running_mean: Maybe,
    running_var: Maybe,
    weight: Maybe,
    bias: Maybe,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> torch.Tensor:
    """Each channel of each sample by its own statistics, or by the running ones.

    The running statistics move towards the samples' mean; of no samples that is NaN.
    """
    if not use_input_stats:
        return _by_running(x, running_mean, running_var, weight, bias, eps)
    values = x.reshape(_flat(x)).float()
    mean = values.mean(2, keepdim=True)
    centred = values - mean
    squares = centred.square().sum(2, keepdim=True)
    count = values.shape[2]
    updates = count > 0 or values.shape[0] == 0
    if running_mean is not None and running_var is not None and updates:
        _move(running_mean, mean.mean(0).flatten(), momentum)
        _move(running_var, (squares / (count - 1)).mean(0).flatten(), momentum)
    normalized = centred * torch.rsqrt(squares / count + eps) if count > 0 else centred
    return _affine(normalized, weight, bias).to(x.dtype).reshape(x.shape)


def batch_norm_reference(
    x: torch.Tensor,
    running_mean: Maybe,
    running_var: Maybe,
    weight: Maybe,
    bias: Maybe,
    num_batches_tracked: Maybe,
    training: bool,
    momentum: float | None,
    eps: float,
) -> torch.Tensor:
    """Each channel by its statistics over the batch, or by the running ones."""
    if not training:
        return _by_running(x, running_mean, running_var, weight, bias, eps)
    if num_batches_tracked is not None:
        num_batches_tracked.add_(1)
    values = x.reshape(_flat(x)).float()
    count = values.shape[0] * values.shape[2]
    if count == 0:
        return torch.empty_like(x)
    mean = values.mean((0, 2), keepdim=True)
    centred = values - mean
    squares = centred.square().sum((0, 2), keepdim=True)
    if running_mean is not None and running_var is not None:
        factor: float | torch.Tensor
        if momentum is not None:
            factor = momentum
        elif num_batches_tracked is not None:
            factor = 1.0 / num_batches_tracked.float()
        else:
            raise ValueError("momentum is None and nothing counts the batches")
        _move(running_mean, mean.flatten(), factor)
        _move(running_var, squares.flatten() / (count - 1), factor)
    normalized = centred * torch.rsqrt(squares / count + eps)
    return _affine(normalized, weight, bias).to(x.dtype).reshape(x.shape)


def _by_running(
    x: torch.Tensor,
    running_mean: Maybe,
    running_var: Maybe,
    weight: Maybe,
    bias: Maybe,
    eps: float,
) -> torch.Tensor:
    if running_mean is None or running_var is None:
        raise ValueError("there are no running statistics")
    centred = x.reshape(_flat(x)).float() - running_mean.float()[:, None]
    normalized = centred * torch.rsqrt(running_var.float() + eps)[:, None]
    return _affine(normalized, weight, bias).to(x.dtype).reshape(x.shape)


def _flat(x: torch.Tensor) -> tuple[int, int, int]:
    """``x``'s shape with its spatial axes in one."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


def _affine(normalized: torch.Tensor, weight: Maybe, bias: Maybe) -> torch.Tensor:
    if weight is not None:
        normalized = normalized * weight.float()[:, None]
    return normalized if bias is None else normalized + bias.float()[:, None]


def _move(running: torch.Tensor, new: torch.Tensor, factor: float | torch.Tensor) -> None:
    running.copy_((1 - factor) * running.float() + factor * new)
