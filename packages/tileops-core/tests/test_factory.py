"""An op that takes no tensor runs its kernel when called, and is plain PyTorch when traced."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.core import (
    Kernel,
    KernelInterface,
    Op,
    Target,
    fills,
    register_target,
    tilelang_backend,
)
from tileops.core.conformance import check_class
from tileops.core.errors import CaptureError, DefinitionError, ParamError, ResultError, TargetError
from tileops.core.planning import planning
from tileops.core.targets import unregister_target
from tileops.core.testing import GraphRecorder
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


def _kernel(op: Op, interface: str, call: StairsCall) -> Callable[..., None]:
    made.append(call)

    @fills
    def kernel(y: torch.Tensor) -> None:
        launched.append(y.device)
        # Another number than the reference's: it tells who made the table.
        y.copy_(torch.arange(call.length) * call.step + 100)

    return kernel


@pytest.fixture(autouse=True)
def counting() -> Iterator[None]:
    register_target(Target("counting", lambda device: False, _kernel))
    made.clear()
    launched.clear()
    torch._dynamo.reset()
    yield
    unregister_target("counting")


def test_it_has_no_boundary() -> None:
    assert StairsFwdOp.compile_op_names == ()
    assert not hasattr(torch.ops.tileops, "test_stairs_fwd")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_bare_call_is_served_by_the_reference_on_the_cpu(dtype: torch.dtype) -> None:
    op = StairsFwdOp(5, 0.5, dtype=dtype)
    torch.testing.assert_close(op(), (torch.arange(5.0) / 2).to(dtype), rtol=0, atol=0)
    assert op.serving_target == "reference"


def test_every_call_gives_memory_of_its_own_and_a_warm_one_only_launches() -> None:
    op = StairsFwdOp(4, target="counting")
    first, second = op(), op()
    torch.testing.assert_close(first, torch.tensor([100.0, 102, 104, 106]))
    torch.testing.assert_close(second, first)
    assert first.data_ptr() != second.data_ptr()
    assert len(made) == 1
    assert launched == [torch.device("cpu")] * 2
    assert op.serving_target == "counting"
    # A plan: forward is not run again.
    (plan,) = op._plans.values()
    assert plan.__code__.co_filename == "<string>"


def test_shared_copied_and_pickled() -> None:
    op = StairsFwdOp.shared(5, device="cpu")
    assert StairsFwdOp.shared(5, device=torch.device("cpu")) is op
    assert pickle.loads(pickle.dumps(op)) is op
    other = pickle.loads(pickle.dumps(StairsFwdOp(5, 3.0, dtype="float16")))
    torch.testing.assert_close(other(), (torch.arange(5.0) * 3).half())


def test_the_call_takes_nothing() -> None:
    with pytest.raises(TypeError, match=r"StairsFwdOp.__call__\(\) takes 1 positional argument"):
        StairsFwdOp(5)(torch.ones(5))


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


def test_a_profiler_watches_and_traces_nothing() -> None:
    op = StairsFwdOp(4, target="counting")
    with torch.profiler.profile():
        op()
    assert len(launched) == 1


def test_a_device_that_is_not_here() -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a CUDA device")
    with pytest.raises(ParamError, match="StairsFwdOp: device is 'cuda', which is not here: "):
        StairsFwdOp(4, device="cuda")()


def test_a_wrong_result_is_refused() -> None:
    register_target(Target("short", lambda d: False, lambda *_: lambda: torch.zeros(3)))
    try:
        op = StairsFwdOp(4, target="short")
        with pytest.raises(ResultError) as error:
            op()
        assert str(error.value) == (
            "StairsFwdOp: the result 'y' of the target 'short' has shape [3], but the signature "
            "needs [4]; mend the target"
        )
        assert op.serving_target is None
    finally:
        unregister_target("short")


def test_no_elements() -> None:
    """There may be no kernel for them, and there is nothing to fill."""
    assert StairsFwdOp(0, target="tilelang")().shape == (0,)


def test_tilelang_does_not_serve_the_cpu() -> None:
    with pytest.raises(TargetError, match="the target 'tilelang' serves CUDA devices"):
        StairsFwdOp(4, target="tilelang")()


def test_its_kernels_are_planned_for_a_build_ahead() -> None:
    """``tileops build`` sees ops by their operators, and this one has none."""
    op = StairsFwdOp(6, dtype="float16", device="cuda")
    with tilelang_backend.assume_arch("sm_90a"), planning() as requests:
        y = op()
    assert (y.shape, y.device.type) == ((6,), "meta")
    (request,) = requests
    assert request.op is op
    assert request.build().kernel is StairsKernel
    assert request.build().identity == (torch.float16,)
    assert op.serving_target is None


def test_warm_up_and_roofline() -> None:
    op = StairsFwdOp(6, target="counting")
    report = op.warm_up()
    assert [call.target for call in report.calls] == ["counting"]
    assert len(launched) == 1
    assert op.roofline() == (6, 24)


def test_the_entry_is_compared_with_what_the_fake_gives() -> None:
    assert check_class(StairsFwdOp.entry, StairsFwdOp) == []
    entry = load_text(ENTRY.replace('shape = ["length"]', 'shape = ["length + 1"]'), path=PATH)
    (fault,) = check_class(entry, StairsFwdOp)
    assert "on the workload 'small' the fake gives y float32[7], contiguous" in str(fault)


def test_the_params_are_checked_at_construction() -> None:
    with pytest.raises(ParamError, match=r"^StairsFwdOp: length is -1; it is at least 0$"):
        StairsFwdOp(-1)


def test_an_entry_without_inputs_has_no_call_time_numbers() -> None:
    text = ENTRY.replace("StairsFwdOp", "CountFwdOp").replace(
        "[[signature.outputs]]", '[[signature.ints]]\nname = "first"\n\n[[signature.outputs]]'
    )

    with pytest.raises(DefinitionError) as error:

        class CountFwdOp(Op, entry=load_text(text, path=Path("count_fwd.toml"))):
            pass

    assert str(error.value) == (
        "CountFwdOp: an op without inputs has no operator, so its call takes nothing, and the "
        "entry gives it first; make params of them"
    )


def test_the_generated_methods_are_not_for_a_class_to_define() -> None:
    text = ENTRY.replace("StairsFwdOp", "OwnFwdOp")
    with pytest.raises(DefinitionError, match="defines __call__, which is generated"):

        class OwnFwdOp(Op, entry=load_text(text, path=Path("own_fwd.toml"))):
            def __call__(self) -> Any:
                return None


@pytest.mark.gpu
def test_a_first_call_is_not_captured() -> None:
    op = StairsFwdOp(4, device="cuda", target="counting")
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(CaptureError, match="has served no call on cuda:0 yet"),
        torch.cuda.graph(graph),
    ):
        op()
