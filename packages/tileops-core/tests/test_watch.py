"""A call leaves the dispatcher out exactly when nothing watches, and gives the same either way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.core import KernelInterface, Op, Target, fills, register_target
from tileops.core import targets as targets_module
from tileops.core.errors import ArgumentError
from tileops.core.watch import dispatcher_bypass, set_dispatcher_bypass
from tileops.manifest import load_text

ENTRY = """
name = "TripleFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Three times x, plus a row."
formula = "y = 3 * x + row"
reference = "torch.add"

[signature.dims]
"*B" = "all axes"

[signature.dtypes]
T = ["float32"]

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B"]

[[signature.inputs]]
name = "row"
dtype = "T"
shape = ["*B"]
optional = true

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B"]
"""
OPERATOR = "tileops::test_triple_fwd"


class TripleInterface(KernelInterface):
    inputs = ("x", "row")
    outputs = ("y",)


class TripleFwdOp(Op, entry=load_text(ENTRY, path=Path("triple_fwd.toml"))):
    interfaces: ClassVar[Any] = {"triple": TripleInterface}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, row: torch.Tensor | None = None) -> Any:
        row = None if row is None else row.contiguous()
        return self.kernel_for("triple", x.device)(x.contiguous(), row)


#: Which function of the generated source launched the kernel, call by call.
launched_from: list[str] = []


def kernel_of(op: Op, interface: str, call: Any) -> Callable[..., None]:
    @fills
    def kernel(x: torch.Tensor, row: torch.Tensor | None, y: torch.Tensor) -> None:
        frame: Any = sys._getframe()
        while not frame.f_code.co_filename.startswith("<tileops_boundary"):
            frame = frame.f_back
        launched_from.append(frame.f_code.co_name)
        y.copy_(3 * x if row is None else 3 * x + row)

    return kernel


@pytest.fixture(autouse=True)
def target() -> Iterator[None]:
    register_target(Target("counting", lambda device: False, kernel_of))
    launched_from.clear()
    yield
    targets_module.unregister_target("counting")


def warm() -> tuple[TripleFwdOp, torch.Tensor]:
    op, x = TripleFwdOp(target="counting"), torch.randn(4, 8)
    with torch.no_grad():
        op(x)
    assert launched_from == ["_run_0"]
    launched_from.clear()
    return op, x


def test_a_call_that_nothing_watches_leaves_the_dispatcher_out() -> None:
    op, x = warm()
    with torch.no_grad():
        torch.testing.assert_close(op(x), 3 * x)
        torch.testing.assert_close(op(torch.nn.Parameter(x)), 3 * x)
    op(x)  # grad mode alone takes nothing from x, which asks for no gradient
    assert launched_from == ["__call__"] * 3


def test_in_a_compiled_function_too() -> None:
    op, x = warm()
    torch._dynamo.reset()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), 3 * x)
    assert launched_from == ["_operator_0"] * 2


def test_the_switch_sends_every_call_through_the_dispatcher() -> None:
    op, x = warm()
    assert dispatcher_bypass()
    set_dispatcher_bypass(False)
    try:
        torch.testing.assert_close(op(x), 3 * x)
    finally:
        set_dispatcher_bypass(True)
    op(x)
    assert launched_from == ["_run_0", "__call__"]


def test_the_switch_can_be_set_in_the_environment() -> None:
    code = "from tileops.core.watch import dispatcher_bypass as b; print(b())"
    for value, expected in (("0", "False"), ("1", "True")):
        result = subprocess.run(
            [sys.executable, "-c", code],
            env={**__import__("os").environ, "TILEOPS_DISPATCHER_BYPASS": value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.strip() == expected


class Dispatches(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.name() if hasattr(func, "name") else str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Dispatches, Functions])
def test_modes_see_the_operator_and_nothing_else(mode: Any) -> None:
    """Nothing of the body shows, on the first call or on a later one."""
    for op, x in (warm(), (TripleFwdOp(target="counting"), torch.randn(4, 8))):
        with mode() as watching:
            y = op(x)
        seen = [name for name in watching.seen if name.startswith("tileops")]
        assert seen == [OPERATOR]
        torch.testing.assert_close(y, 3 * x)
    with Dispatches() as watching:
        op(x)
    assert watching.seen == [OPERATOR]


def test_the_profiler_sees_the_operator() -> None:
    op, x = warm()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        op(x)
    assert OPERATOR in [event.key for event in profile.key_averages()]
    with torch.autograd.profiler.profile() as profile:
        op(x)
    assert OPERATOR in [event.key for event in profile.key_averages()]


def test_fake_mode_gets_a_fake_and_launches_nothing() -> None:
    op, x = warm()
    with FakeTensorMode() as mode:
        y = op(mode.from_tensor(x))
    assert type(y).__name__ == "FakeTensor"
    assert launched_from == []


def test_make_fx_records_one_node() -> None:
    op, x = warm()
    graph = make_fx(lambda x: op(x))(x)
    calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.tileops.test_triple_fwd.default]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_jit_trace_records_the_operator() -> None:
    op, x = warm()
    traced = torch.jit.trace(lambda x: op(x), (x,))
    assert OPERATOR in str(traced.graph)
    other = torch.randn(4, 8)
    torch.testing.assert_close(traced(other), 3 * other)


def test_vmap_maps_over_the_operator() -> None:
    """By PyTorch's own loop over the operator, of which it warns once."""
    op, _ = warm()
    x = torch.randn(3, 4, 8)
    torch.testing.assert_close(torch.vmap(lambda x: op(x))(x), 3 * x)
    assert len(launched_from) == 3


def test_a_subclass_is_handed_the_operator() -> None:
    seen = []

    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    op, x = warm()
    op(x.as_subclass(Wrapped))
    assert torch.ops.tileops.test_triple_fwd.default in seen


def test_a_device_context_is_shown_the_operator() -> None:
    """It is a function mode; it then calls the operator with itself out of the way."""
    op, x = warm()
    with torch.device("cpu"):
        torch.testing.assert_close(op(x), 3 * x)
    assert launched_from == ["_operator_0"]


def test_a_negated_view_gives_the_right_sign() -> None:
    """It is contiguous and aligned, and its memory holds the other sign."""
    op, x = warm()
    negated = torch._neg_view(x)
    assert negated.is_contiguous()
    assert negated.data_ptr() == x.data_ptr()
    torch.testing.assert_close(op(negated), -3 * x)
    torch.testing.assert_close(op(x, negated), 2 * x)


def test_a_zero_tensor_and_a_strided_one_are_right() -> None:
    op, _ = warm()
    zero = torch._efficientzerotensor(4, 8)
    torch.testing.assert_close(op(zero), torch.zeros(4, 8))
    torch.testing.assert_close(op(torch.randn(8, 4).t() * 0 + 1), torch.full((4, 8), 3.0))
    wide = torch.randn(4, 9)
    torch.testing.assert_close(op(wide[:, 1:]), 3 * wide[:, 1:])
    flat = torch.randn(33)
    unaligned = flat[1:].view(4, 8)
    assert unaligned.data_ptr() % 16
    torch.testing.assert_close(op(unaligned), 3 * unaligned)


def test_a_plan_is_for_its_own_metadata() -> None:
    """Every part of what a plan is found by makes another plan, and none serves another's call."""
    op, x = warm()
    for other in (torch.randn(8, 4), torch.randn(4, 8, 1), torch.randn(0, 8), torch.randn(())):
        torch.testing.assert_close(op(other), 3 * other)
    row = torch.randn(4, 8)
    torch.testing.assert_close(op(x, row), 3 * x + row)
    torch.testing.assert_close(op(x), 3 * x)
    with pytest.raises(Exception, match="row has shape"):
        op(x, torch.randn(8, 4))
    with pytest.raises(Exception, match="x has dtype float64"):
        op(x.double())


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode loop over ever new lengths would otherwise grow without end."""
    from tileops.core import serve

    monkeypatch.setattr(serve, "_MOST_PLANS", 8)
    op = TripleFwdOp(target="counting")
    for n in range(30):
        op(torch.randn(n + 1))
    assert 0 < len(op._plans) <= 8


def test_one_tensor_in_two_places_makes_no_plan_for_two_tensors() -> None:
    """A plan made then could not tell the two apart: later calls got the first's numbers."""
    op, x = TripleFwdOp(target="counting"), torch.randn(4, 8)
    torch.testing.assert_close(op(x, x), 4 * x)
    row = torch.randn(4, 8)
    for _ in range(2):
        torch.testing.assert_close(op(x, row), 3 * x + row)
        torch.testing.assert_close(op(x, x), 4 * x)


def test_a_pre_dispatch_trace_records_one_node_of_a_warm_op() -> None:
    """Its modes are kept apart from the others', and the body would run unseen."""
    op, x = warm()
    graph = make_fx(lambda x: op(x), pre_dispatch=True)(x)
    calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.tileops.test_triple_fwd.default]


@pytest.mark.parametrize("layout", ["sparse", "csr", "mkldnn"])
def test_another_layout_is_refused_though_its_shape_was_served(layout: str) -> None:
    op, _ = warm()
    op(torch.randn(8, 4).t())
    dense = torch.randn(4, 8)
    other = {
        "sparse": dense.to_sparse,
        "csr": dense.to_sparse_csr,
        "mkldnn": dense.to_mkldnn,
    }[layout]()
    with pytest.raises(ArgumentError, match=r"but the signature needs torch.strided"):
        op(other)
