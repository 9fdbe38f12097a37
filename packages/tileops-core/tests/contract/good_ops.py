"""Ops that keep to their contracts, one of each kind that a signature can have."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from tileops.core import KernelInterface, Op
from tileops.core.contract import CompileCase

from .declare import Call, X, Y, case, doubled, entry, twice_op

MUTATED = X + "mutated = true\n"
BY = """
[[signature.inputs]]
name = "by"
dtype = "T"
shape = ["N"]
optional = true
"""
COUNT = """
[[signature.inputs]]
name = "count"
dtype = "int64"
shape = []
mutated = true
"""
ALIAS = Y.replace('shape = ["*B", "N"]', 'shape = ["*B", "N"]\nalias = "x"', 1)
OUT = Y.replace('shape = ["*B", "N"]', 'shape = ["*B", "N"]\nbuffer = "out"', 1)
SUM = """
[[signature.outputs]]
name = "total"
dtype = "T"
shape = ["*B"]

[[tolerances]]
output = "total"
dtype = "float32"
rtol = 1e-5
atol = 1e-5
reason = "eight summands of absolute value below 10, each rounded once"
"""

TwiceFwdOp = twice_op("ContractTwiceFwdOp")


class Bump(KernelInterface):
    inputs: ClassVar = ("x", "count", "by")
    outputs: ClassVar = ()

    @classmethod
    def reference(cls, call: Any, *tensors: Any) -> None:
        x, count, by = tensors
        x += 1 if by is None else by
        count += 1


class ContractBumpFwdOp(Op, entry=entry("ContractBumpFwdOp", MUTATED, COUNT, BY)):
    """x += by, or 1; count += 1; no output."""

    interfaces: ClassVar = {"bump": Bump}

    def forward(self, x: Any, count: Any, by: Any = None) -> Any:
        return self.kernel_for("bump", Call(x.device))(x, count, by)


class Inplace(KernelInterface):
    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y", "total")

    @classmethod
    def reference(cls, call: Any, *tensors: Any) -> Any:
        (x,) = tensors
        x *= 2
        return x, x.sum(-1)


class ContractInplaceFwdOp(Op, entry=entry("ContractInplaceFwdOp", MUTATED, ALIAS, SUM)):
    """x *= 2, returned as y; sum over columns."""

    interfaces: ClassVar = {"inplace": Inplace}

    def forward(self, x: Any) -> Any:
        return self.kernel_for("inplace", Call(x.device))(x)


class ContractOutFwdOp(Op, entry=entry("ContractOutFwdOp", X, OUT)):
    """y = 2 x, into ``out`` where it is given."""

    def forward(self, x: Any, *, out: Any = None) -> Any:
        return x.contiguous() * 2 if out is None else torch.mul(x, 2, out=out)


COMPOSITION = """
[[composition]]
op = "ContractTwiceFwdOp"
count = 2
"""


class ContractFourFwdOp(Op, entry=entry("ContractFourFwdOp", X, Y, COMPOSITION)):
    """y = 4 x + 1, of two nodes with plain PyTorch between."""

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)
        self.first, self.second = TwiceFwdOp(target=target), TwiceFwdOp(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(self.first(x) + 0.25) + 0.5


RAMP = """
[[signature.params]]
name = "length"
type = "int"

[[signature.params]]
name = "device"
type = "device"
default = "cpu"

[[signature.outputs]]
name = "y"
dtype = "float32"
shape = ["length"]
device = "device"

[[tolerances]]
output = "y"
dtype = "float32"
rtol = 1e-6
atol = 0.0
reason = "one product, rounded once"
"""


class ContractRampFwdOp(Op, entry=entry("ContractRampFwdOp", RAMP)):
    """y[i] = i / 3; no tensor is given at the call."""

    def __init__(self, length: int, device: Any = "cpu", *, target: str | None = None) -> None:
        self.length = length
        self.device = device
        super().__init__(target=target)

    def forward(self) -> torch.Tensor:
        return torch.arange(self.length, device=self.device) * torch.tensor(1 / 3)


def _bumped(by: bool) -> Any:
    def make(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        x = torch.randn(3, 5, 8, device=device, generator=generator)
        more = {"by": torch.randn(8, device=device, generator=generator)} if by else {}
        return {"x": x, **more, "count": torch.tensor(4, device=device)}

    return make


def _into(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
    x = torch.randn(3, 5, 8, device=device, generator=generator)
    return {"x": x, "out": torch.full_like(x, float("nan"))}


CASES: dict[str, CompileCase] = {
    "one node": case(TwiceFwdOp),
    "writes, no output": case(
        ContractBumpFwdOp,
        make=_bumped(True),
        oracle=lambda op, *, x, by, count: {"x": x + by, "count": count + 1},
    ),
    "optional input absent": case(
        ContractBumpFwdOp,
        "without by",
        make=_bumped(False),
        oracle=lambda op, *, x, count: {"x": x + 1, "count": count + 1},
    ),
    "alias and another output": case(
        ContractInplaceFwdOp, oracle=lambda op, *, x: (2 * x, (2 * x).sum(-1))
    ),
    "allocates where out is absent": case(ContractOutFwdOp),
    "out": case(ContractOutFwdOp, "out", make=_into),
    "composite": case(ContractFourFwdOp, oracle=lambda op, *, x: 4 * x + 1),
    "composite with nodes": case(
        ContractFourFwdOp,
        "nodes",
        oracle=lambda op, *, x: 4 * x + 1,
        nodes=["tileops::contracts_contract_twice_fwd"] * 2,
    ),
    "no call-time tensor": case(
        ContractRampFwdOp,
        params={"length": 7},
        make=lambda device, generator: {},
        oracle=lambda op: torch.arange(op.length, dtype=torch.float64) / 3,
    ),
    "sizes by the case": case(
        TwiceFwdOp,
        "sized",
        sized=lambda device, generator, rows: {
            "x": torch.randn(rows, 8, device=device, generator=generator)
        },
    ),
}
__all__ = ["CASES", "doubled"]
