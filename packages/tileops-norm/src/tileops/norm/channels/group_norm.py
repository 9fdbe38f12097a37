"""GroupNormFwdOp: normalization over groups of channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.channels.call import ChannelNormCall, GroupNormFwdInterface
from tileops.norm.channels.kernels import KERNEL_TYPES, layout_for

__all__ = ["GroupNormFwdOp"]


class GroupNormFwdOp(Op):
    """Group normalization (https://arxiv.org/abs/1803.08494).

    ``y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias``, as
    :func:`torch.nn.functional.group_norm`: the mean and the biased variance are those of each
    sample's groups of ``C / num_groups`` channels, over these channels and all spatial axes; weight
    and bias are of a channel. All is computed in float32, the variance from differences to the
    mean, and rounded once, to ``x``'s dtype.

    Args:
        num_groups: the groups that a sample's channels are split into; at least 1.
        eps: added to the variance; at least 0.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, weight=None, bias=None)``. ``x`` is ``[N, C, *S]``, float16, bfloat16 or float32;
        ``weight`` and ``bias`` are ``[C]``, of one dtype, ``x``'s or float32. Returns ``y``,
        ``[N, C, *S]`` of ``x``'s dtype, contiguous whatever the strides of ``x``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not: ``C`` is no multiple of ``num_groups``, or the whole batch
            is one group of one value.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = KERNEL_TYPES
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "group_norm": GroupNormFwdInterface
    }

    num_groups: int
    eps: float

    def __init__(self, num_groups: int, eps: float = 1e-5, *, target: str | None = None) -> None:
        self.num_groups = num_groups
        self.eps = eps
        super().__init__(target=target)

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = x.contiguous()  # the generated checks have run
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        scaled = bias if weight is None else weight
        call = ChannelNormCall(
            device=x.device,
            mode="group",
            num_groups=self.num_groups,
            own=True,
            eps=self.eps,
            momentum=None,
            dtype=x.dtype,
            affine=None if scaled is None else scaled.dtype,
            running=None,
            weighted=weight is not None,
            biased=bias is not None,
            counted=False,
            layout=layout_for(x, "group", self.num_groups),
        )
        y: torch.Tensor = self.kernel_for("group_norm", call)(x, weight, bias)
        return y
