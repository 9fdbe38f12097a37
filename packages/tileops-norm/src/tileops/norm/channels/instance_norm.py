"""InstanceNormFwdOp: normalization of each channel of each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.channels.call import ChannelNormCall, InstanceNormFwdInterface
from tileops.norm.channels.kernels import KERNEL_TYPES, layout_for

__all__ = ["InstanceNormFwdOp"]


class InstanceNormFwdOp(Op):
    """Instance normalization (https://arxiv.org/abs/1607.08022).

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, as
    :func:`torch.nn.functional.instance_norm`. With ``use_input_stats`` the mean and the biased
    variance are those of each sample's channel over its spatial axes, and running statistics that
    are given move towards the samples' mean of them::

        running = (1 - momentum) * running + momentum * mean over N of the statistic

    where the variance is the unbiased one; a batch of no samples makes them NaN, as PyTorch does.
    Without it the running statistics normalize, and nothing is written. All is computed in float32,
    variances from differences to the mean, and rounded once, to the dtype of what is written.

    Args:
        use_input_stats: whether to normalize by the input's own statistics.
        momentum: the weight of the new statistics in the running ones.
        eps: added to the variance; at least 0.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, running_mean=None, running_var=None, weight=None, bias=None)``. ``x`` is
        ``[N, C, *S]``, float16, bfloat16 or float32; the others are ``[C]``, weight and bias of one
        dtype, the running statistics of one, each ``x``'s or float32. The running statistics are
        given both or neither, and where ``use_input_stats`` is false they must be. Returns ``y``,
        ``[N, C, *S]`` of ``x``'s dtype, contiguous whatever the strides of ``x``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not, or a channel to normalize has one value.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = KERNEL_TYPES
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "instance_norm": InstanceNormFwdInterface
    }

    use_input_stats: bool
    momentum: float
    eps: float

    def __init__(
        self,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
        *,
        target: str | None = None,
    ) -> None:
        self.use_input_stats = use_input_stats
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
    ) -> torch.Tensor:
        x = x.contiguous()  # the generated checks have run
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        if not self.use_input_stats and running_mean is not None and running_var is not None:
            # Those that are written are contiguous already.
            running_mean, running_var = running_mean.contiguous(), running_var.contiguous()
        scaled = bias if weight is None else weight
        call = ChannelNormCall(
            device=x.device,
            mode="instance",
            num_groups=0,
            own=self.use_input_stats,
            eps=self.eps,
            momentum=self.momentum,
            dtype=x.dtype,
            affine=None if scaled is None else scaled.dtype,
            running=None if running_mean is None else running_mean.dtype,
            weighted=weight is not None,
            biased=bias is not None,
            counted=False,
            layout=layout_for(x, "instance", own=self.use_input_stats),
        )
        kernel = self.kernel_for("instance_norm", call)
        y: torch.Tensor = kernel(x, running_mean, running_var, weight, bias)
        return y
