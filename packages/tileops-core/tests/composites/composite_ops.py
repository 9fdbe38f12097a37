"""A small op, a composite of two of it, one of composites, and a target that notes its calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

from tileops.core import KernelInterface, Op
from tileops.manifest import load_text

HEAD = """
name = "{name}"
family = "composites"
status = "implemented"
since = "0.1.0"
summary = "For tests."
formula = "none"
reference = "none"

[signature.dims]
B = "rows"
N = "columns"
{more}

[signature.dtypes]
T = ["float32", "bfloat16"]

[[signature.params]]
name = "factor"
type = "float"
default = 2.0

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["B", "N"]
"""

SCALE = """
[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["B", "N"]
"""

PROJECT = """
[[signature.params]]
name = "biased"
type = "bool"
default = false

[[signature.inputs]]
name = "weight"
dtype = "T"
shape = ["G", "N"]

[[signature.inputs]]
name = "bias"
dtype = "T"
shape = ["G"]
optional = "not biased"

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["B", "G"]

[[signature.outputs]]
name = "total"
dtype = "T"
shape = ["B", "N"]

[[signature.rules]]
require = "B %% 2 == 0"
message = "x has {B} rows; they are even in number"

[[composition]]
op = "%s"
count = %d

[[workloads]]
label = "small"
model = "none"
phase = "test"
dims = { B = 4, N = 8, G = 6 }
dtypes = { T = "float32" }

[roofline]
flops = "2 * B * N * G"
"""

#: The call specs that the target's kernels were made for; the target claims devices while CLAIMS.
made: list[Any] = []
CLAIMS: list[bool] = []


@dataclasses.dataclass(frozen=True)
class ScaleCall:
    device: torch.device
    factor: float


class ScaleInterface(KernelInterface):
    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: ScaleCall, *inputs: Any) -> Any:
        return inputs[0] * call.factor


def kernel_of(op: Op, interface: str, call: Any) -> Callable[..., Any]:
    made.append(call)
    return lambda x: x * call.factor


def entry_of(name: str, *parts: str) -> Any:
    more = 'G = "columns of the result"' if "composition" in parts[0] else ""
    return load_text(
        "\n".join([HEAD.format(name=name, more=more), *parts]), path=Path("for_tests.toml")
    )


class ScaledFwdOp(Op, entry=entry_of("ScaledFwdOp", SCALE)):
    """y = factor x, by a kernel."""

    interfaces: ClassVar = {"scale": ScaleInterface}
    factor: float

    def __init__(self, factor: float = 2.0, *, target: str | None = None) -> None:
        self.factor = factor
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        return self.kernel_for("scale", ScaleCall(x.device, self.factor))(x.contiguous())


class ProjectedFwdOp(Op, entry=entry_of("ProjectedFwdOp", PROJECT % ("ScaledFwdOp", 2))):
    """total = factor x + 1; y = factor total weight.T (+ bias)."""

    factor: float
    biased: bool

    def __init__(
        self, factor: float = 2.0, biased: bool = False, *, target: str | None = None
    ) -> None:
        self.factor, self.biased = factor, biased
        super().__init__(target=target)
        self.parts = [self.sub_op(ScaledFwdOp, self.factor), self.sub_op(ScaledFwdOp, self.factor)]

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> Any:
        total = self.parts[0](x) + 1
        return torch.nn.functional.linear(self.parts[1](total), weight, bias), total


class OuterFwdOp(Op, entry=entry_of("OuterFwdOp", PROJECT % ("ProjectedFwdOp", 1))):
    """What ProjectedFwdOp gives, by one that it holds."""

    factor: float
    biased: bool

    def __init__(
        self, factor: float = 2.0, biased: bool = False, *, target: str | None = None
    ) -> None:
        self.factor, self.biased = factor, biased
        super().__init__(target=target)
        self.inner = self.sub_op(ProjectedFwdOp, self.factor, biased=self.biased)

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> Any:
        return self.inner(x, weight, bias)
