"""RMSNorm's kernels: which TileLang program serves a call, how it is built and launched."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import torch

from tileops.core import Kernel, KernelInterface
from tileops.core.dtypes import dtype_name
from tileops.core.errors import TargetError
from tileops.core.tilelang_backend import Program, build, device_arch, launcher
from tileops.norm.rms_norm import programs
from tileops.norm.rms_norm.reference import rms_norm_reference
from tileops.norm.rows.call import LayerNormCall

__all__ = [
    "RMSNormFwdInterface",
    "RMSNormKernel",
    "RMSNormOnChipKernel",
    "RMSNormStreamingKernel",
]


class RMSNormFwdInterface(KernelInterface):
    """``(x, weight) -> y``: x and y are contiguous rows of ``n``, weight has ``n`` or is None."""

    inputs = ("x", "weight")
    outputs = ("y",)

    @classmethod
    def select(cls, call: LayerNormCall, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        if call.weight_offset:
            raise TargetError(
                "RMSNormFwdOp: the target 'tilelang' has no kernel with a weight_offset; use "
                "target='reference'"
            )
        arch = device_arch(call.device)
        return kernel_types[programs.select(call.n, dtype_name(call.dtype), call.aligned, arch)]

    @classmethod
    def reference(cls, call: LayerNormCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        x, weight = inputs
        if x is None:
            raise ValueError("x is None")
        return rms_norm_reference(x, weight, call.n, call.eps, call.weight_offset)


class _RMSNormProgram(Kernel):
    """What the three kernels share; each names the TileLang program that it launches."""

    program_name: ClassVar[programs.Name]

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Program]]:
        dtype = dtype_name(call.dtype)
        weight_dtype = None if call.weight_dtype is None else dtype_name(call.weight_dtype)
        arch = device_arch(call.device)
        name = cls.program_name
        config = programs.choose_config(name, call.n, dtype, weight_dtype, call.aligned, arch)

        def build_program() -> Program:
            return build(
                lambda: programs.program(name, call.n, dtype, weight_dtype, config), arch=arch
            )

        return (name, call.n, dtype, weight_dtype, config, arch), build_program

    def __call__(self, *tensors: Any) -> None:
        self.prepare(*tensors)(*tensors)

    def prepare(self, *tensors: Any) -> Callable[..., None]:
        x, weight, _ = tensors
        words = ["0", "2", "rows", "eps"] if weight is None else ["0", "1", "2", "rows", "eps"]
        numbers = {"rows": x.numel() // self.call.n, "eps": self.call.eps}
        return launcher(self.program.launch, self.call.device.index, words, numbers)


class RMSNormKernel(_RMSNormProgram):
    """The row in registers; short rows share a block."""

    program_name = "rms_norm"


class RMSNormStreamingKernel(_RMSNormProgram):
    """Rows of any width: what does not fit the chip is read twice."""

    program_name = "rms_norm_streaming"


class RMSNormOnChipKernel(_RMSNormProgram):
    """Wide rows, read once and held in registers and shared memory."""

    program_name = "rms_norm_on_chip"
