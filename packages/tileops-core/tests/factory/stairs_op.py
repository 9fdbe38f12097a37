"""An op that takes no tensor, and what its target was asked for and launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op, fills
from tileops.manifest import load_text

ENTRY = """
name = "StairsFwdOp"
family = "test"
status = "implemented"
since = "0.1.0"
summary = "Stairs."
formula = "y[i] = i * step"
reference = "torch.arange"

[[signature.params]]
name = "length"
type = "int"

[[signature.params]]
name = "step"
type = "float"
default = 2.0

[[signature.params]]
name = "dtype"
type = "dtype"
default = "float32"
choices = ["float32", "float16"]
keyword_only = true

[[signature.params]]
name = "device"
type = "device"
optional = true
keyword_only = true

[[signature.outputs]]
name = "y"
dtype = "dtype"
shape = ["length"]
device = "device"

[[signature.rules]]
require = "length >= 0"
message = "length is {length}; it is at least 0"

[[workloads]]
label = "small"
model = "none"
phase = "test"
params = { length = 6 }

[roofline]
flops = "length"
"""
PATH = Path("stairs_fwd.toml")

#: The devices of the call specs that the kernels were made for, and of their launches.
made: list[Any] = []
launched: list[Any] = []


@dataclasses.dataclass(frozen=True)
class StairsCall:
    device: torch.device | None
    dtype: torch.dtype
    length: int
    step: float


class StairsKernel(Kernel):
    @classmethod
    def entry_for(cls, call: StairsCall) -> Any:
        return (call.dtype,), lambda: None


class StairsInterface(KernelInterface):
    inputs = ()
    outputs = ("y",)

    @classmethod
    def select(cls, call: Any, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        return kernel_types["stairs"]

    @classmethod
    def reference(cls, call: StairsCall, *inputs: Any) -> torch.Tensor:
        return (torch.arange(call.length, device=call.device) * call.step).to(call.dtype)


class StairsFwdOp(Op, entry=load_text(ENTRY, path=PATH)):
    interfaces: ClassVar[Any] = {"stairs": StairsInterface}
    kernel_types: ClassVar[Any] = {"stairs": StairsKernel}

    length: int
    step: float
    dtype: torch.dtype

    def __init__(
        self,
        length: int,
        step: float = 2.0,
        *,
        dtype: Any = torch.float32,
        device: Any = None,
        target: str | None = None,
    ) -> None:
        self.length = length
        self.step = step
        self.dtype = dtype
        self.device = device
        super().__init__(target=target)

    def forward(self) -> Any:
        call = StairsCall(self.output_device(), self.dtype, self.length, self.step)
        return self.kernel_for("stairs", call)()


def kernel_of(op: Op, interface: str, call: StairsCall) -> Callable[..., None]:
    made.append(call)

    @fills
    def kernel(y: torch.Tensor) -> None:
        launched.append(y.device)
        # Another number than the reference's: it tells who made the table.
        y.copy_(torch.arange(call.length) * call.step + 100)

    return kernel
