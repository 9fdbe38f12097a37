"""The channel norms' kernels: how their programs are built and launched."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import torch

from tileops.core import Kernel
from tileops.core.dtypes import dtype_name
from tileops.core.tilelang_backend import Program, build, device_arch, launcher
from tileops.norm.cards import MULTIPROCESSORS
from tileops.norm.channels.call import ChannelNormCall
from tileops.norm.channels.choices import choose_layout
from tileops.norm.channels.layouts import (
    Layout,
)
from tileops.norm.channels.layouts import Program as Name
from tileops.norm.channels.numbers import launch_numbers
from tileops.norm.channels.pieces import PASS_CONFIGS
from tileops.norm.channels.shapes import Mode, Shape
from tileops.norm.channels.traits import Traits

__all__ = ["KERNEL_TYPES", "layout_for"]

TENSORS: Mapping[Mode, tuple[str, ...]] = {
    "group": ("x", "weight", "bias", "y"),
    "instance": ("x", "running_mean", "running_var", "weight", "bias", "y"),
    "batch": ("x", "running_mean", "running_var", "weight", "bias", "counter", "y"),
}
"""What a kernel is called with, by the programs' names."""

_TENSOR_NAMES = frozenset(name for names in TENSORS.values() for name in names)


def layout_for(
    x: torch.Tensor, mode: Mode, num_groups: int = 0, *, own: bool = True
) -> Layout | None:
    """The layout for the contiguous ``x``; None where the in-tree kernels serve no such device."""
    # Plans for other machines are made with tensors on the meta device.
    if x.device.type not in ("cuda", "meta"):
        return None
    return choose_layout(
        _shape(x, mode, num_groups),
        dtype_name(x.dtype),
        x.data_ptr() % 16 == 0,
        own,
        device_arch(x.device),
        _multiprocessors(x.device),
    )


def _shape(x: torch.Tensor, mode: Mode, num_groups: int) -> Shape:
    return Shape(mode, x.shape[0], x.shape[1], math.prod(x.shape[2:]), num_groups)


def _multiprocessors(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return MULTIPROCESSORS.get(device_arch(device), 128)


class _ChannelNormKernel(Kernel):
    """What the kernels share; each names the TileLang program that it launches."""

    program_name: ClassVar[Name]

    @classmethod
    def entry_for(cls, call: ChannelNormCall) -> tuple[Hashable, Callable[[], Any]]:
        arch, name, layout = device_arch(call.device), cls.program_name, call.layout
        traits = Traits(
            call.mode,
            dtype_name(call.dtype),
            "" if call.affine is None else dtype_name(call.affine),
            call.weighted,
            call.biased,
            "" if call.running is None else dtype_name(call.running),
            call.own and call.counted,
            call.own and call.counted and call.momentum is None,
        )

        def build_program() -> Program:
            make = getattr(_module(name), name)
            return build(lambda: make(traits, layout), arch=arch, pass_configs=PASS_CONFIGS)

        return (name, traits, layout, arch), build_program

    def __call__(self, *tensors: Any) -> None:
        self.prepare(*tensors)(*tensors)

    def prepare(self, *tensors: Any) -> Callable[..., None]:
        call: ChannelNormCall = self.call
        if call.layout is None:
            raise ValueError("a kernel was made without a layout")
        averages = call.mode == "instance" and call.own and call.running is not None
        numbers, workspace = launch_numbers(
            _shape(tensors[0], call.mode, call.num_groups),
            call.layout,
            averages,
            _multiprocessors(call.device),
        )
        numbers["eps"] = call.eps
        numbers["momentum"] = 0.0 if call.momentum is None else call.momentum
        words, used = [], {}
        for name in _module(self.program_name).PARAMETERS:
            word = name
            if name in _TENSOR_NAMES:
                place = TENSORS[call.mode].index(name) if name in TENSORS[call.mode] else None
                there = place is not None and tensors[place] is not None
                word = str(place) if there else "none"
            elif name == "workspace" and workspace == 0:
                word = "none"
            if word in numbers:
                used[word] = numbers[word]
            elif word == "none":
                used[word] = 0
            words.append(word)
        return launcher(self.program.launch, call.device.index, words, used, workspace=workspace)


def _module(name: Name) -> Any:
    return import_module(f"tileops.norm.channels.programs.{name}")


class HeldKernel(_ChannelNormKernel):
    """A unit in the registers of a block or of a cluster."""

    program_name = "held"


class EvenKernel(_ChannelNormKernel):
    """A unit in the registers of threads that hold equally much of it."""

    program_name = "even"


class RelayKernel(_ChannelNormKernel):
    """A unit over many blocks, read twice by one launch."""

    program_name = "relay"


class SplitKernel(_ChannelNormKernel):
    """A unit of any size, read twice."""

    program_name = "split"


class ColumnsKernel(_ChannelNormKernel):
    """A batch's channels side by side, in registers."""

    program_name = "columns"


class ColumnsSplitKernel(_ChannelNormKernel):
    """A batch's channels side by side, read twice."""

    program_name = "columns_split"


class FlatKernel(_ChannelNormKernel):
    """By the running statistics."""

    program_name = "flat"


class ColumnsRunningKernel(_ChannelNormKernel):
    """By the running statistics, channels side by side."""

    program_name = "columns_running"


class NothingKernel(Kernel):
    """Of no elements there are no statistics: the counter goes on, and what PyTorch makes NaN is.

    A batch of no elements leaves the running statistics alone; a sample's channels move them by
    their mean over the samples, which of no samples is NaN.
    """

    @classmethod
    def entry_for(cls, call: ChannelNormCall) -> tuple[Hashable, Callable[[], Any]]:
        return ("nothing",), object

    def __call__(self, *tensors: Any) -> None:
        call: ChannelNormCall = self.call
        given = dict(zip(TENSORS[call.mode], tensors, strict=True))
        if not call.own:
            return
        if call.mode == "batch" and given["counter"] is not None:
            given["counter"].add_(1)
        if call.mode == "instance" and given["x"].shape[0] == 0 and call.running is not None:
            given["running_mean"].fill_(math.nan)
            given["running_var"].fill_(math.nan)


KERNEL_TYPES: Mapping[str, type[Kernel]] = {
    "held": HeldKernel,
    "even": EvenKernel,
    "relay": RelayKernel,
    "split": SplitKernel,
    "columns": ColumnsKernel,
    "columns_split": ColumnsSplitKernel,
    "flat": FlatKernel,
    "columns_running": ColumnsRunningKernel,
    "nothing": NothingKernel,
}
"""The kernels by their programs' names."""
