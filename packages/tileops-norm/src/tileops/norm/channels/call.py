"""What a channel norm's kernel is chosen by, and the roles that it has in the three ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface
from tileops.core.errors import TargetError
from tileops.norm.channels.layouts import Layout
from tileops.norm.channels.reference import (
    batch_norm_reference,
    group_norm_reference,
    instance_norm_reference,
)
from tileops.norm.channels.shapes import Mode

__all__ = [
    "BatchNormFwdInterface",
    "ChannelNormCall",
    "GroupNormFwdInterface",
    "InstanceNormFwdInterface",
]


@dataclasses.dataclass(frozen=True)
class ChannelNormCall:
    """What a channel norm's kernel is chosen by.

    Attributes:
        mode: what is normalized together: a group of a sample's channels, one channel of a sample,
            one channel of all samples.
        num_groups: the groups of a sample's channels; 0 unless the mode is ``group``.
        own: whether the statistics are the input's own, else the running ones.
        momentum: weight of the input's statistics in the running ones; None averages by the
            counter.
        dtype, affine, running: dtypes of x, of weight and bias, and of the running statistics;
            None where a call has none of them.
        weighted, biased, counted: whether weight, bias and num_batches_tracked are there.
        layout: which program serves the sizes, and how it is laid out; None where the tensors are
            on no device that the in-tree kernels serve.
    """

    device: torch.device
    mode: Mode
    num_groups: int
    own: bool
    eps: float
    momentum: float | None
    dtype: torch.dtype
    affine: torch.dtype | None
    running: torch.dtype | None
    weighted: bool
    biased: bool
    counted: bool
    layout: Layout | None


class _ChannelNormInterface(KernelInterface):
    outputs: ClassVar[tuple[str, ...]] = ("y",)

    @classmethod
    def select(
        cls, call: ChannelNormCall, kernel_types: Mapping[str, type[Kernel]]
    ) -> type[Kernel]:
        if call.layout is None:
            raise TargetError(
                f"the target 'tilelang' has no kernels of channel norms for {call.device}; use "
                f"target='reference'"
            )
        return kernel_types[call.layout.program]


class GroupNormFwdInterface(_ChannelNormInterface):
    """``(x, weight, bias) -> y``: x and y are contiguous; weight and bias may be None."""

    inputs = ("x", "weight", "bias")

    @classmethod
    def reference(cls, call: ChannelNormCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        x, weight, bias = inputs
        return group_norm_reference(_there(x), weight, bias, call.num_groups, call.eps)


class InstanceNormFwdInterface(_ChannelNormInterface):
    """As GroupNorm's; the running statistics, which may be None, are written where ``own``."""

    inputs = ("x", "running_mean", "running_var", "weight", "bias")

    @classmethod
    def reference(cls, call: ChannelNormCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        x, running_mean, running_var, weight, bias = inputs
        return instance_norm_reference(
            _there(x),
            running_mean,
            running_var,
            weight,
            bias,
            call.own,
            0.0 if call.momentum is None else call.momentum,
            call.eps,
        )


class BatchNormFwdInterface(_ChannelNormInterface):
    """As InstanceNorm's, with the counter, a 0-d int64 tensor that is written where ``own``."""

    inputs = ("x", "running_mean", "running_var", "weight", "bias", "num_batches_tracked")

    @classmethod
    def reference(cls, call: ChannelNormCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        x, running_mean, running_var, weight, bias, num_batches_tracked = inputs
        return batch_norm_reference(
            _there(x),
            running_mean,
            running_var,
            weight,
            bias,
            num_batches_tracked,
            call.own,
            call.momentum,
            call.eps,
        )


def _there(x: torch.Tensor | None) -> torch.Tensor:
    if x is None:
        raise ValueError("x is None")
    return x
