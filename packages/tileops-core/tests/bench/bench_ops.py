"""Ops that only the tests of the benchmarks use, and targets that serve them badly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch

from tileops.core import KernelInterface, Op, Target, register_target
from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.core.contract import CompileCase, register
from tileops.core.targets import unregister_target
from tileops.manifest import load_text

SCALE = """
name = "BenchScaleFwdOp"
family = "benchtest"
status = "planned"
since = "0.1.0"
summary = "Scales rows."
formula = "y = x * factor"
reference = "torch.mul"

[signature.dims]
N = "rows"
D = "columns"

[signature.dtypes]
T = ["float32", "bfloat16"]

[[signature.params]]
name = "factor"
type = "float"

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["N", "D"]

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["N", "D"]

[[workloads]]
label = "small"
model = "none"
phase = "prefill"
params = { factor = 3.0 }
dims = { N = 4, D = 8 }
dtypes = { T = "float32" }

[[workloads]]
label = "large"
model = "none"
phase = "decode"
params = { factor = 3.0 }
dims = { N = 64, D = 32 }
dtypes = { T = "float32" }

[roofline]
flops = "N * D"

[[tolerances]]
output = "y"
dtype = "float32"
rtol = 1e-6
atol = 1e-30
reason = "one rounding"
"""

BUMP = """
name = "BenchBumpFwdOp"
family = "benchtest"
status = "planned"
since = "0.1.0"
summary = "Adds the rows of a table in place."
formula = "x += table[row]"
reference = "none"

[signature.dims]
N = "rows"
D = "columns"
M = "rows of the table"

[signature.dtypes]
T = ["float32"]

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["N", "D"]
mutated = true

[[signature.inputs]]
name = "table"
dtype = "T"
shape = ["M", "D"]

[[signature.inputs]]
name = "row"
dtype = "int64"
shape = ["N"]

[[workloads]]
label = "picked"
model = "none"
phase = "decode"
params = {}
dims = { N = 4, D = 8, M = 16 }
dtypes = { T = "float32" }
generators = { row = { kind = "slots", below = "M" } }

[[workloads]]
label = "anywhere"
model = "none"
phase = "decode"
params = {}
dims = { N = 4, D = 8, M = 16 }
dtypes = { T = "float32" }
"""


class Scale(KernelInterface):
    inputs = ("x",)
    outputs = ("y",)

    @classmethod
    def reference(cls, call: Any, *inputs: torch.Tensor | None) -> Any:
        (x,) = inputs
        return None if x is None else x * call.factor


class ScaleCall:
    def __init__(self, device: torch.device, factor: float) -> None:
        self.device, self.factor = device, factor
        self.key = (device, factor)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScaleCall) and self.key == other.key


class BenchScaleFwdOp(Op, entry=load_text(SCALE, path=Path("bench_scale_fwd.toml"))):
    interfaces: ClassVar[Any] = {"scale": Scale}
    factor: float

    def __init__(self, factor: float, *, target: str | None = None) -> None:
        self.factor = factor
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        return self.kernel_for("scale", ScaleCall(x.device, self.factor))(x.contiguous())


class Bump(KernelInterface):
    inputs = ("x", "table", "row")
    outputs = ()

    @classmethod
    def reference(cls, call: Any, *inputs: torch.Tensor | None) -> Any:
        x, table, row = inputs
        assert x is not None
        assert table is not None
        assert row is not None
        x += table[row]


class BenchBumpFwdOp(Op, entry=load_text(BUMP, path=Path("bench_bump_fwd.toml"))):
    interfaces: ClassVar[Any] = {"bump": Bump}

    def forward(self, x: torch.Tensor, table: torch.Tensor, row: torch.Tensor) -> Any:
        return self.kernel_for("bump", ScaleCall(x.device, 0.0))(x, table, row)


register(
    CompileCase(
        BenchScaleFwdOp,
        "float32",
        {"factor": 3.0},
        lambda device, generator: {"x": torch.randn(2, 3, generator=generator, device=device)},
        lambda op, *, x: x * op.factor,
    )
)
register_baseline(Baseline(BenchScaleFwdOp, lambda op, x: torch.mul(x, op.factor)))


def _slow(factor: float, x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.002)
    return x * factor


BODIES: dict[str, Callable[[float, torch.Tensor], Any]] = {
    "right": lambda factor, x: x * factor,
    "wrong": lambda factor, x: x * factor + (x == x.max()),
    "unwritten": lambda factor, x: torch.empty_like(x),
    "slow": _slow,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Inside, the target ``name`` is there, which claims every device."""

    def kernel(op: Op, interface: str, call: Any) -> Any:
        return lambda x: BODIES[name](call.factor, x)

    register_target(Target(name, lambda device: True, kernel))
    try:
        yield
    finally:
        unregister_target(name)
