"""What each phase of an op's life may and may not do: a test for each cell of the design's table
that shows without a GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.core import Target, plugins, programs, register_target
from tileops.core.errors import ArgumentError, CaptureError, KernelBuildError, TargetError
from tileops.core.serve import serve
from tileops.core.targets import unregister_target

from .serving_ops import AddFwdOp

CUDA = torch.device("cuda", 0)


@pytest.fixture
def asked(ops: ModuleType) -> Iterator[list[str]]:
    """Every question that the choice of a target puts, from here on."""
    questions: list[str] = []

    def claims(device: torch.device) -> bool:
        questions.append(f"claims {device}")
        return False

    register_target(Target("curious", claims, lambda *_: questions.append("kernel") or (lambda: 0)))
    yield questions
    unregister_target("curious")


def empty(op: Any) -> bool:
    return (op.serving_target, op._state.targets, op._state.kernels, op._plans) == (
        None,
        {},
        {},
        {},
    )


# -- class definition and construction ----------------------------------------------------------

DEFINES = """
import sys, torch
def touched(*_, **__):
    raise AssertionError("a device was touched")
for name in ("_lazy_init", "is_available", "device_count", "current_device", "init"):
    setattr(torch.cuda, name, touched)
import tileops.core
from tileops.core import plugins
sys.path.insert(0, sys.argv[1])
import serving_ops
op = serving_ops.AddFwdOp(); serving_ops.AddFwdOp.shared(target="nowhere")
assert op.compile_op_names == ("tileops::serving_add_fwd",)
assert not plugins._loaded
assert not [name for name in sys.modules if name.split(".")[0] in ("tilelang", "tvm", "tvm_ffi")]
assert not torch.cuda.is_initialized()
torch.compile(lambda x: op(x), backend="eager")  # made, not called
print("fine")
"""


def test_defining_and_constructing_touches_no_device_and_imports_no_tilelang() -> None:
    """An import that initialised CUDA would break every process that forks afterwards."""
    result = subprocess.run(
        [sys.executable, "-c", DEFINES, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout == "fine\n", result.stderr


def test_construction_resolves_nothing_and_builds_nothing(
    ops: ModuleType, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is built where there may be no device, and no target that exists."""
    monkeypatch.setattr(plugins, "_loaded", False)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: pytest.fail("plugins were loaded"))
    for op in (ops.AddFwdOp(), ops.AddFwdOp(target="nowhere"), ops.AddFwdOp.shared()):
        assert empty(op)
    assert (asked, ops.events) == ([], [])


# -- tracing, fake and meta ---------------------------------------------------------------------


def on_meta(op: Any) -> Any:
    return op(torch.empty(3, 4, device="meta"))


def on_fake(op: Any) -> Any:
    with FakeTensorMode():
        return op(torch.empty(3, 4, device="cuda:1"))


def in_make_fx(op: Any) -> Any:
    make_fx(op, tracing_mode="fake")(torch.zeros(3, 4))
    return None


def in_export(op: Any) -> Any:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return op(x)

    torch.export.export(Model(), (torch.zeros(3, 4),))
    return None


def in_dynamo(op: Any) -> Any:
    def backend(graph: Any, inputs: Any) -> Any:
        return lambda *_: (torch.zeros(3, 4),)

    return torch.compile(op, backend=backend, fullgraph=True)(torch.zeros(3, 4))


@pytest.mark.parametrize("trace", [on_meta, on_fake, in_make_fx, in_export, in_dynamo])
def test_tracing_resolves_builds_and_reads_nothing(
    ops: ModuleType, asked: list[str], trace: Any
) -> None:
    """Even where the target does not exist: who serves is chosen inside the node, later."""
    op = ops.AddFwdOp()
    result = trace(op)
    assert result is None or (tuple(result.shape), result.dtype) == ((3, 4), torch.float32)
    assert empty(op)
    assert (asked, ops.events) == ([], [])
    trace(ops.AddFwdOp(target="building"))
    assert ops.events == []


def test_a_fake_call_is_checked() -> None:
    """The checks are what tracing may do: a wrong call fails where the graph is made."""
    with pytest.raises(ArgumentError) as error:
        AddFwdOp()(torch.empty(3, 4, device="meta", dtype=torch.int8))
    assert str(error.value) == (
        "AddFwdOp: x has dtype int8, but the signature needs T = float32 or float16"
    )


# -- the first real call ------------------------------------------------------------------------


def test_the_first_call_checks_resolves_builds_and_launches(
    ops: ModuleType, asked: list[str]
) -> None:
    op = ops.AddFwdOp(target="building")
    with pytest.raises(ArgumentError):
        op(torch.zeros(3, 4, dtype=torch.int8))
    assert (ops.events, empty(op)) == ([], True)
    op(torch.zeros(3, 4))
    assert ops.events == [("build", 4), "launch"]
    assert (op.serving_target, asked) == ("building", [])
    ops.AddFwdOp()(torch.zeros(3, 4))
    assert asked == ["claims cpu"]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("where", ["resolve", "build", "launch"])
def test_a_failed_first_call_leaves_nothing_and_the_next_works(
    ops: ModuleType, where: str, compiled: bool
) -> None:
    """Target, kernels and plans are kept together, after the launch, or not at all."""
    op = ops.AddFwdOp(target="building")
    call = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
    wanted = {"resolve": TargetError, "build": KernelBuildError, "launch": ValueError}[where]
    if where == "resolve":
        unregister_target("building")
    else:
        setattr(ops.fault, where, ValueError("no"))
    with pytest.raises(wanted):
        call(torch.zeros(3, 4))
    assert empty(op)
    assert len(programs._programs) == (where == "launch")
    if where == "resolve":
        register_target(ops.BUILDING)
    ops.fault.build = ops.fault.launch = None
    assert torch.equal(call(torch.zeros(3, 4)), torch.ones(3, 4))
    assert op.serving_target == "building"


# -- a warm call --------------------------------------------------------------------------------


class Operators(TorchDispatchMode):
    """Every operator below the op's node."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_warm_call_checks_nothing_again_and_builds_nothing(
    ops: ModuleType, asked: list[str], monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    op = ops.AddFwdOp(target="building")
    call = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
    checked, infer = [], ops.AddFwdOp._infer
    monkeypatch.setattr(
        ops.AddFwdOp, "_infer", lambda *given: checked.append(given) or infer(*given)
    )
    with torch.no_grad():
        call(torch.zeros(3, 4))
        checked.clear()
        ops.events.clear()
        for _ in range(5):
            call(torch.zeros(3, 4))
        assert (checked, ops.events, asked) == ([], ["launch"] * 5, [])
        call(torch.zeros(2, 4))
    assert checked


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "strided"])
def test_a_warm_call_reads_no_data(ops: ModuleType, settled: bool) -> None:
    """To read a value (``item``, ``nonzero``, a copy to the host) is to wait for the device.

    Seen below the node: an allocation, a strided input's copy, and the kernel's own operator.
    """
    op = ops.AddFwdOp(target="building")
    x = torch.zeros(3, 4) if settled else torch.zeros(4, 3).t()
    op(x)
    (plan,) = op._plans.values()
    with Operators() as below:
        plan(op, x, None)
    assert [name for name in below.seen if not name.startswith("aten::empty")] == [
        *([] if settled else ["aten::clone"]),
        "aten::add.out",
    ]


class Untouchable(torch.Tensor):
    """A tensor whose data cannot be had: any operator on it but the op's own is an error."""

    seen: ClassVar[list[str]] = []

    @staticmethod
    def __new__(cls, x: torch.Tensor) -> Untouchable:
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.name())
        return torch.zeros(3, 4)


def test_outside_of_its_node_an_op_does_nothing_to_its_tensors(ops: ModuleType) -> None:
    """What a subclass sees of a call is the operator, and nothing before or after it."""
    Untouchable.seen.clear()
    ops.AddFwdOp(target="building")(Untouchable(torch.zeros(3, 4)))
    assert Untouchable.seen == ["tileops::serving_add_fwd"]


# -- under capture ------------------------------------------------------------------------------


@pytest.fixture
def capture(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """CPU tensors whose programs are said to be for a CUDA device; nothing is captured yet."""
    ops.fault.device = CUDA
    monkeypatch.setattr(programs, "_current", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return monkeypatch


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_cold_call_inside_a_capture_launches_nothing_and_works_after_a_warm_up(
    ops: ModuleType, capture: pytest.MonkeyPatch, compiled: bool
) -> None:
    op = ops.AddFwdOp(target="building")
    call = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
    x = torch.zeros(3, 4)
    with torch.no_grad():
        for _ in range(2):
            with capture.context() as inside:
                inside.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
                with pytest.raises(CaptureError) as error:
                    call(x)
            assert str(error.value) == (
                "AddFwdOp: no kernel is built for n = 4, and none can be built while a CUDA graph "
                "is captured; call the op once with tensors of this shape before the capture, then "
                "capture again"
            )
            assert (ops.events, empty(op)) == ([], True)
        op.warm_up(x)
        ops.events.clear()
        with capture.context() as inside:
            inside.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
            assert torch.equal(call(x), torch.ones(3, 4))
            # Sizes are dynamic, so another number of rows needs no build either.
            op(torch.zeros(5, 4))
        assert ops.events == ["launch", "launch"]


def test_a_first_call_inside_a_capture_fails_before_its_copies_are_enqueued(
    ops: ModuleType, capture: pytest.MonkeyPatch
) -> None:
    """A written strided tensor is copied in: that copy used to be captured before the error.

    What the node is given says that it is on a CUDA device; there is none here, so the outputs'
    own description is what says so.
    """
    op = ops.AccumulateFwdOp()
    x, by = torch.zeros(4, 3).t(), torch.ones(4)
    specs = (((3, 4), torch.float32, CUDA),)
    capture.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(CaptureError) as error, Operators() as below:
        serve(op, 0, specs, (x, by), ("key", False))
    assert below.seen == []
    assert empty(op)
    assert str(error.value) == (
        "AccumulateFwdOp: this instance has served no call on cuda:0 yet, and a first call cannot "
        "be captured in a CUDA graph; warm it up before the capture, with op.warm_up(...) or one "
        "call, for x float32[3, 4], by float32[4], then capture again"
    )
