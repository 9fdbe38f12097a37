"""Entries, ops and cases that only the tests of the contract runner use, in few words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from tileops.core import KernelInterface, Op
from tileops.core.contract import CompileCase
from tileops.manifest import Entry, load_text

HEAD = """
name = "{name}"
family = "contracts"
status = "planned"
since = "0.1.0"
summary = "For tests."
formula = "y = 2 x"
reference = "torch.mul"
"""

TENSORS = """
[signature.dims]
{axes}
N = "columns"

[signature.dtypes]
T = ["float32"]
"""

X = """
[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]
"""

Y = """
[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]

[[tolerances]]
output = "y"
dtype = "float32"
rtol = 1e-6
atol = 1e-7
reason = "one product, rounded once"
"""


def entry(name: str, *parts: str, axes: str = '"*B" = "leading axes"') -> Entry:
    """An entry of these parts; its tensors have the axes ``*B`` and ``N`` and the dtype ``T``."""
    tensors = (
        [TENSORS.format(axes=axes)] if any("signature.inputs" in part for part in parts) else []
    )
    text = "\n".join([HEAD.format(name=name), *tensors, *parts])
    return load_text(text, path=Path("for_tests.toml"))


@dataclasses.dataclass(frozen=True)
class Call:
    device: torch.device


class Twice(KernelInterface):
    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)

    @classmethod
    def reference(cls, call: Any, *inputs: Any) -> Any:
        return inputs[0] * 2


class TwiceOp(Op, abstract=True):
    """y = 2 x, by a kernel."""

    interfaces: ClassVar = {"twice": Twice}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        return self.kernel_for("twice", Call(x.device))(x.contiguous())


def twice_op(name: str, **body: Any) -> type[Op]:
    """A new op that doubles; ``body`` replaces what the class defines."""
    return type(name, (TwiceOp,), body, entry=entry(name, X, Y))  # type: ignore[call-overload, no-any-return]


def inputs(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
    return {"x": torch.randn(3, 5, 8, device=device, generator=generator)}


def doubled(op: Any, *, x: torch.Tensor) -> torch.Tensor:
    return x + x


def case(
    cls: type[Op],
    label: str = "float32",
    params: Mapping[str, Any] | None = None,
    make: Callable[..., Any] = inputs,
    oracle: Callable[..., Any] = doubled,
    **more: Any,
) -> CompileCase:
    return CompileCase(cls, label, params or {}, make, oracle, **more)
