"""BatchNormFwdOp: normalization of each channel over the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.channels.call import BatchNormFwdInterface, ChannelNormCall
from tileops.norm.channels.kernels import KERNEL_TYPES, layout_for

__all__ = ["BatchNormFwdOp"]


class BatchNormFwdOp(Op):
    """Batch normalization (https://arxiv.org/abs/1502.03167).

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, as
    :func:`torch.nn.functional.batch_norm`. In training the mean and the biased variance are those
    of each channel over the batch and its spatial axes, and running statistics that are given move
    towards them::

        num_batches_tracked += 1
        running = (1 - m) * running + m * statistic

    where the variance is the unbiased one, and ``m`` is ``momentum``, or
    ``1 / num_batches_tracked`` where that is None, which averages over all batches as
    ``torch.nn.BatchNorm2d`` does. A batch of no elements is counted and moves nothing. In
    evaluation the running statistics normalize, and nothing is written. All is computed in float32,
    variances from differences to the mean, and rounded once, to the dtype of what is written.

    Args:
        training: whether to normalize by the batch's own statistics.
        momentum: the weight of the new statistics in the running ones; None averages.
        eps: added to the variance; at least 0, in training above 0.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, running_mean=None, running_var=None, weight=None, bias=None,
        num_batches_tracked=None)``. ``x`` is ``[N, C, *S]``, float16, bfloat16 or float32; the
        others are ``[C]``, weight and bias of one dtype, the running statistics of one, each
        ``x``'s or float32; ``num_batches_tracked`` is a 0-d int64 tensor. The running statistics
        are given both or neither, and in evaluation they must be; the counter is given with them
        only. Returns ``y``, ``[N, C, *S]`` of ``x``'s dtype, contiguous whatever the strides of
        ``x``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not, or a channel has one value in training.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = KERNEL_TYPES
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "batch_norm": BatchNormFwdInterface
    }

    training: bool
    momentum: float | None
    eps: float

    def __init__(
        self,
        training: bool = False,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        *,
        target: str | None = None,
    ) -> None:
        self.training = training
        self.momentum = momentum
        self.eps = eps
        super().__init__(target=target)

    def forward(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None = None,
        running_var: torch.Tensor | None = None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        num_batches_tracked: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = x.contiguous()  # the generated checks have run
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        if not self.training and running_mean is not None and running_var is not None:
            # Those that are written are contiguous already.
            running_mean, running_var = running_mean.contiguous(), running_var.contiguous()
        scaled = bias if weight is None else weight
        call = ChannelNormCall(
            device=x.device,
            mode="batch",
            num_groups=0,
            own=self.training,
            eps=self.eps,
            momentum=self.momentum,
            dtype=x.dtype,
            affine=None if scaled is None else scaled.dtype,
            running=None if running_mean is None else running_mean.dtype,
            weighted=weight is not None,
            biased=bias is not None,
            counted=num_batches_tracked is not None,
            layout=layout_for(x, "batch", own=self.training),
        )
        kernel = self.kernel_for("batch_norm", call)
        y: torch.Tensor = kernel(x, running_mean, running_var, weight, bias, num_batches_tracked)
        return y
