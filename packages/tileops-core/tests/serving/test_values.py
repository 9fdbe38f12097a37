"""An op whose params ask for it checks its tensors' values at every call, warm ones too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tileops.core import KernelInterface, Op, Target, fills, register_target
from tileops.core.errors import ArgumentError, TileOpsError
from tileops.core.planning import planning
from tileops.core.targets import unregister_target
from tileops.manifest import load_text

ENTRY = """
name = "RootFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Square roots."
formula = "y = sqrt(x)"
reference = "torch.sqrt"

[signature.dims]
"*B" = "all axes"

[signature.dtypes]
T = ["float32"]

[[signature.params]]
name = "checked"
type = "bool"
default = true

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B"]

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B"]
"""


class RootInterface(KernelInterface):
    inputs = ("x",)
    outputs = ("y",)


class RootFwdOp(Op, entry=load_text(ENTRY, path=Path("root_fwd.toml"))):
    interfaces: ClassVar[Any] = {"root": RootInterface}
    checked: bool

    def __init__(self, checked: bool = True, *, target: str | None = None) -> None:
        self.checked = checked
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        if self.checked:
            self.check_values((x >= 0).all(), lambda: f"x has {float(x.min())}; none is below 0")
        return self.kernel_for("root", x.device)(x.contiguous())


def _kernel(op: Op, interface: str, call: Any) -> Callable[..., None]:
    return fills(lambda x, y: torch.sqrt(x, out=y))


@pytest.fixture(autouse=True)
def target() -> Any:
    register_target(Target("filling", lambda device: False, _kernel))
    yield
    unregister_target("filling")


@pytest.mark.parametrize("warm", [0, 2])
def test_a_wrong_value_is_refused_cold_and_warm(warm: int) -> None:
    """A warm call launches its kernel and runs no forward, unless forward reads values."""
    op = RootFwdOp(target="filling")
    for _ in range(warm):
        torch.testing.assert_close(op(torch.full((3,), 4.0)), torch.full((3,), 2.0))
    with pytest.raises(ArgumentError) as error:
        op(torch.tensor([1.0, -4.0, 1.0]))
    assert str(error.value) == "RootFwdOp: x has -4.0; none is below 0"
    torch.testing.assert_close(op(torch.full((3,), 4.0)), torch.full((3,), 2.0))


def test_in_a_compiled_function() -> None:
    op = RootFwdOp(target="filling")
    torch._dynamo.reset()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(torch.full((3,), 4.0)), torch.full((3,), 2.0))
    with pytest.raises(ArgumentError, match=r"RootFwdOp: x has -4\.0; none is below 0"):
        compiled(torch.full((3,), -4.0))


def test_an_op_that_does_not_ask_keeps_its_plan() -> None:
    op = RootFwdOp(False, target="filling")
    assert op(torch.full((3,), -4.0)).isnan().all()
    (plan,) = op._plans.values()
    assert plan.__code__.co_filename == "<string>"


def test_planning_has_no_values_to_read() -> None:
    with planning() as requests:
        RootFwdOp()(torch.empty(3, device="meta"))
    assert [request.interface for request in requests] == ["root"]


def test_only_inside_a_call() -> None:
    with pytest.raises(TileOpsError, match="call the op itself, not its forward"):
        RootFwdOp().forward(torch.ones(3))
