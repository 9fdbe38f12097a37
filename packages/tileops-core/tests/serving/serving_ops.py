"""Ops whose target builds through core as the in-tree kernels do, but on any device.

``events`` says what happened, in order: ``build``, then ``launch``. Programs depend on the width
and the dtype; the number of rows is dynamic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op, Target
from tileops.core.kernels import program_for
from tileops.manifest import Entry, load_text

ENTRY = """
name = "{name}"
family = "serving"
status = "planned"
since = "0.1.0"
summary = "For tests."
formula = "y = x + by"
reference = "torch.add"

[signature.dims]
"*B" = "leading axes"
N = "columns"

[signature.dtypes]
T = ["float32", "float16"]

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]
{mutated}

[[signature.inputs]]
name = "by"
dtype = "T"
shape = ["N"]
optional = {optional}
{ints}
[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]
{alias}
"""

events: list[Any] = []


class Fault:
    """What the tests let go wrong: ``build`` or ``launch`` raises what is set here."""

    build: BaseException | None = None
    launch: BaseException | None = None
    device: torch.device | None = None
    """Where the program is said to be for; None is where the call is."""


fault = Fault()


@dataclasses.dataclass(frozen=True)
class Call:
    device: torch.device
    n: int
    dtype: torch.dtype
    aligned: bool = True


class AddKernel(Kernel):
    @classmethod
    def entry_for(cls, call: Call) -> tuple[Hashable, Callable[[], Any]]:
        def build() -> Any:
            if fault.build is not None:
                raise fault.build
            events.append(("build", call.n))
            return torch.add

        return (call.n, call.dtype), build

    def __call__(self, *tensors: Any) -> None:
        if fault.launch is not None:
            raise fault.launch
        events.append("launch")
        x, by, y = tensors
        self.program(x, 1 if by is None else by, out=y)


class AccumulateKernel(AddKernel):
    def __call__(self, *tensors: Any) -> None:
        x, by = tensors
        super().__call__(x, by, x)


class AddInterface(KernelInterface):
    inputs: ClassVar = ("x", "by")
    outputs: ClassVar = ("y",)

    @classmethod
    def select(cls, call: Call, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        return kernel_types["add"]

    @classmethod
    def reference(cls, call: Call, *inputs: Any) -> Any:
        x, by = inputs
        return x + (1 if by is None else by)


class AccumulateInterface(AddInterface):
    outputs: ClassVar = ()

    @classmethod
    def reference(cls, call: Call, *inputs: Any) -> Any:
        x, by = inputs
        x += by


def entry(name: str, **words: str) -> Entry:
    filled = {"mutated": "", "alias": "", "optional": "true", "ints": "", **words}
    return load_text(ENTRY.format(name=name, **filled), path=Path("serving.toml"))


def spec(x: torch.Tensor) -> Call:
    return Call(x.device, x.shape[-1], x.dtype, x.data_ptr() % 16 == 0)


class AddFwdOp(Op, entry=entry("AddFwdOp")):
    """y = x + by, or x + 1"""

    kernel_types: ClassVar = {"add": AddKernel}
    interfaces: ClassVar = {"add": AddInterface}

    def forward(self, x: torch.Tensor, by: torch.Tensor | None = None) -> Any:
        return self.kernel_for("add", spec(x))(x.contiguous(), by)


class AccumulateFwdOp(
    Op,
    entry=entry("AccumulateFwdOp", mutated="mutated = true", alias='alias = "x"', optional="false"),
):
    """x += by, and returns x"""

    kernel_types: ClassVar = {"add": AccumulateKernel}
    interfaces: ClassVar = {"add": AccumulateInterface}

    def forward(self, x: torch.Tensor, by: torch.Tensor) -> Any:
        self.kernel_for("add", spec(x))(x, by)
        return x


class LimitFwdOp(Op, entry=entry("LimitFwdOp", ints='[[signature.ints]]\nname = "limit"\n')):
    """y = min(x + by, limit)"""

    interfaces: ClassVar = {"add": AddInterface}

    def forward(self, x: torch.Tensor, by: torch.Tensor | None = None, *, limit: int) -> Any:
        return torch.clamp(x + (1 if by is None else by), max=limit)


def _kernel(op: Op, interface: str, call: Call) -> Callable[..., Any]:
    chosen = op.interfaces[interface].select(call, op.kernel_types)
    identity, build = chosen.entry_for(call)
    program = program_for(
        identity,
        build,
        device=fault.device or call.device,
        op=type(op).__name__,
        shape=f"n = {call.n}",
        kernel=chosen,
    )
    return chosen(call, program)


BUILDING = Target("building", lambda device: False, _kernel)
