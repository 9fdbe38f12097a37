"""An op that takes no tensor is plain PyTorch where it is traced, whatever traces it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from stairs_op import StairsFwdOp, launched, made
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.core import Op
from tileops.core.errors import TargetError
from tileops.core.testing import GraphRecorder


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_model_compiles_in_one_graph_of_plain_pytorch(backend: str) -> None:
    op = StairsFwdOp(5)
    recorder = GraphRecorder(backend)
    compiled = torch.compile(lambda x: x + op(), backend=recorder, fullgraph=True)
    x = torch.randn(3, 5)
    torch.testing.assert_close(compiled(x), x + op())
    (calls,) = recorder.calls
    assert calls
    assert not [call for call in calls if "tileops" in call]


def test_cold_compiled_under_a_default_device() -> None:
    """``device=None`` is PyTorch's default device, at the call and not at the trace alone."""
    op = StairsFwdOp(5)
    compiled = torch.compile(op, backend="eager", fullgraph=True)
    with torch.device("meta"):
        assert (compiled().device.type, op().device.type) == ("meta", "meta")
    assert (compiled().device.type, op().device.type) == ("cpu", "cpu")


def _fake(op: Op) -> Any:
    with FakeTensorMode():
        return op()


def _proxied(op: Op) -> Any:
    graph = make_fx(lambda x: x + op())(torch.ones(5))
    targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert any("arange" in target for target in targets)
    return graph(torch.zeros(5))


def _proxied_before_dispatch(op: Op) -> Any:
    return make_fx(lambda x: x + op(), pre_dispatch=True)(torch.ones(5))(torch.zeros(5))


def _jit_traced(op: Op) -> Any:
    traced = torch.jit.trace(lambda x: x + op(), torch.ones(5), check_trace=False)
    assert "aten::arange" in str(traced.graph)
    return traced(torch.zeros(5))


class _Model(torch.nn.Module):
    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.op()


def _exported(op: Op, *, strict: bool = False) -> Any:
    program = torch.export.export(_Model(op), (torch.ones(5),), strict=strict)
    assert "arange" in str(program.graph)
    return program.module()(torch.zeros(5))


def _exported_strictly(op: Op) -> Any:
    return _exported(op, strict=True)


def _functionalized(op: Op) -> Any:
    return torch.func.functionalize(lambda x: x + op())(torch.zeros(5))


def _mapped(op: Op) -> Any:
    return torch.func.vmap(lambda x: x + op())(torch.zeros(2, 5))[0]


class _Dispatch(TorchDispatchMode):
    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _Dispatch.seen += 1
        return func(*args, **(kwargs or {}))


class _Function(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _Dispatch.seen += 1
        return func(*args, **(kwargs or {}))


def _watched(mode: Any) -> Callable[[Op], Any]:
    def call(op: Op) -> Any:
        before = _Dispatch.seen
        with mode():
            y = op()
        assert _Dispatch.seen > before
        return y

    call.__name__ = mode.__name__
    return call


TRACERS = [
    *(_fake, _proxied, _proxied_before_dispatch, _jit_traced, _exported, _exported_strictly),
    *(_functionalized, _mapped, _watched(_Dispatch), _watched(_Function)),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("tracer", TRACERS, ids=lambda tracer: tracer.__name__)
def test_whatever_traces_gets_plain_pytorch(tracer: Callable[[Op], Any]) -> None:
    op = StairsFwdOp(5)
    y = tracer(op)
    assert (y.shape, y.dtype) == ((5,), torch.float32)
    if tracer is not _fake:
        torch.testing.assert_close(y, torch.arange(5.0) * 2, rtol=0, atol=0)
    assert op.serving_target is None
    assert op._plans == {}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("tracer", TRACERS, ids=lambda tracer: tracer.__name__)
def test_an_explicit_target_says_that_it_cannot_serve_a_traced_call(tracer: Any) -> None:
    op = StairsFwdOp(5, target="counting")
    with pytest.raises(Exception, match="the target 'counting' cannot serve") as error:
        tracer(op)
    assert (
        "StairsFwdOp: the target 'counting' cannot serve a traced call: an op that takes no tensor "
        "is no node of the graph, and is traced as plain PyTorch; leave target= out, or call the "
        "op outside and pass its result in"
    ) in str(error.value)
    if tracer is not _exported_strictly:
        assert isinstance(error.value, TargetError)
    assert made == []
    tracer(StairsFwdOp(5, target="reference"))


def test_an_explicit_target_is_refused_by_fullgraph_and_served_where_a_graph_may_break() -> None:
    op = StairsFwdOp(5, target="counting")
    compiled = torch.compile(lambda x: x + op(), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="StairsFwdOp: the target 'counting'"):
        compiled(torch.zeros(5))
    torch._dynamo.reset()
    broken = torch.compile(lambda x: x + op(), backend="eager")
    torch.testing.assert_close(broken(torch.zeros(5)), torch.arange(5.0) * 2 + 100)


@pytest.mark.parametrize("build", [StairsFwdOp, StairsFwdOp.shared], ids=["new", "shared"])
def test_one_that_is_made_inside_compiled_code(build: Any) -> None:
    """Dynamo said that it cannot trace the builtin operator eval, or a method of bytes."""

    def call(x: torch.Tensor) -> torch.Tensor:
        return x + build(5)()

    with pytest.raises(torch._dynamo.exc.Unsupported, match="an op is made inside compiled code"):
        torch.compile(call, backend="eager", fullgraph=True)(torch.zeros(5))
    torch._dynamo.reset()
    broken = torch.compile(call, backend="eager")
    torch.testing.assert_close(broken(torch.zeros(5)), torch.arange(5.0) * 2)


def test_a_meta_device_makes_no_kernel_and_resolves_nothing() -> None:
    op = StairsFwdOp(5, device="meta", target="counting")
    y = op()
    assert (y.shape, y.dtype, y.device.type) == ((5,), torch.float32, "meta")
    assert op.serving_target is None
    assert made == []


def test_a_compile_in_another_thread_leaves_an_eager_call_its_kernel() -> None:
    """``torch.compiler.is_compiling()`` is true in all threads while one compiles."""
    op, started, done = StairsFwdOp(4, target="counting"), threading.Event(), threading.Event()

    def slow(graph: Any, inputs: Any) -> Any:
        started.set()
        assert done.wait(30)
        return graph

    compiled = torch.compile(lambda x: x * 2, backend=slow)
    thread = threading.Thread(target=compiled, args=(torch.ones(2),))
    thread.start()
    try:
        assert started.wait(30)
        op()
    finally:
        done.set()
        thread.join()
    assert len(launched) == 1
