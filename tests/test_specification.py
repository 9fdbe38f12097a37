"""Statements of the specification about a compiled function as a whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd

from tileops.core import Op, Target, register_target
from tileops.core.errors import KernelBuildError, TargetError
from tileops.core.targets import unregister_target
from tileops.core.testing import GraphRecorder
from tileops.manifest import load_text
from tileops.norm import RMSNormFwdOp

OPERATOR = "tileops::norm_rms_norm_fwd"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def reference_kernel(op: Op, interface: str, call: Any) -> Callable[..., Any]:
    role = op.interfaces[interface]
    return lambda *inputs: role.reference(call, *inputs)


@pytest.fixture
def other_target() -> Iterator[list[str]]:
    """A target beside the project's own; the list says which instances asked it for a kernel."""
    asked: list[str] = []

    def kernel(op: Op, interface: str, call: Any) -> Callable[..., Any]:
        asked.append(op._key)
        return reference_kernel(op, interface, call)

    register_target(Target("other", lambda device: False, kernel))
    yield asked
    unregister_target("other")


def inductor_graph(function: Callable[..., Any], *inputs: Any) -> torch.fx.Graph:
    """The functional graph that AOTAutograd hands on, dead code gone."""
    graphs: list[torch.fx.Graph] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph.graph)
        return graph

    backend = aot_autograd(fw_compiler=keep)
    with torch.no_grad():
        torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    (graph,) = graphs
    return graph


def targets_of(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_a_node_that_nobody_reads_is_deleted() -> None:
    op = RMSNormFwdOp(8)

    def function(x: torch.Tensor) -> torch.Tensor:
        op(x)
        return x + 1

    assert targets_of(inductor_graph(function, torch.randn(2, 8))) == ["aten.add.Tensor"]


def test_inductor_fuses_the_neighbours_around_the_node() -> None:
    """What stands on both sides becomes one kernel, which takes over the node's buffer."""
    op = RMSNormFwdOp(8)

    def function(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        a = z + 1
        y = op(x)
        b = a * 2
        c = y.exp() + 1
        result: torch.Tensor = b.sin() + c
        return result

    x, z = torch.randn(2, 8), torch.randn(2, 8)
    _, codes = torch._inductor.utils.run_and_get_code(torch.compile(function, fullgraph=True), x, z)
    (code,) = codes
    assert code.count(f"torch.ops.{OPERATOR.replace('::', '.')}.default(") == 1
    assert len(re.findall(r"^ +cpp_fused\w*\(", code, re.MULTILINE)) == 1
    assert "# reuse" in code


def test_the_graph_code_log_shows_the_node_and_nothing_of_the_kernel() -> None:
    program = (
        "import torch\n"
        "from tileops.norm import RMSNormFwdOp\n"
        "op = RMSNormFwdOp(normalized_shape=(16,))\n"
        "block = torch.compile(lambda x, w: op(x, w), fullgraph=True, backend='aot_eager')\n"
        "block(torch.randn(4, 16), torch.randn(16))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_LOGS": "graph_code"},
        capture_output=True,
        text=True,
        check=True,
    )
    nodes = [line for line in result.stderr.splitlines() if "torch.ops." in line]
    assert len(nodes) == 1
    assert "torch.ops.tileops.norm_rms_norm_fwd.default(l_" in nodes[0]


def test_the_graph_is_the_same_for_every_target(other_target: list[str]) -> None:
    x = torch.randn(2, 24)
    texts, instances = [], []
    for target in (None, "reference", "other"):
        op = RMSNormFwdOp(24, target=target)
        instances.append(op)
        recorder = GraphRecorder("aot_eager")
        torch._dynamo.reset()
        torch.compile(op, backend=recorder, fullgraph=True)(x)
        (graph,) = recorder.graphs
        text = graph.print_readable(print_output=False)
        texts.append(text.replace(op._key, "KEY"))
    assert texts[0] == texts[1] == texts[2]
    assert [op.serving_target for op in instances] == ["reference", "reference", "other"]


def test_a_constructor_target_takes_effect_on_the_first_compiled_call(
    other_target: list[str],
) -> None:
    op = RMSNormFwdOp(24, target="other")
    torch.compile(op, backend="aot_eager", fullgraph=True)(torch.randn(2, 24))
    assert other_target == [op._key]
    assert op.serving_target == "other"


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_failed_build_pins_no_target_and_the_retry_works(compiled: bool) -> None:
    """A compiled artefact keeps nothing of the caller's try and except: the node undoes it."""
    broken = True

    def kernel(op: Op, interface: str, call: Any) -> Callable[..., Any]:
        if broken:
            raise KernelBuildError("RMSNormFwdOp: no compiler here")
        return reference_kernel(op, interface, call)

    register_target(Target("flaky", lambda device: False, kernel))
    try:
        op, x = RMSNormFwdOp(24, target="flaky"), torch.randn(2, 24)
        call = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
        for _ in range(2):
            with pytest.raises(KernelBuildError, match="no compiler here"):
                call(x)
            assert op.serving_target is None
            assert op._state.targets == {}
            assert op._plans == {}
        broken = False
        torch.testing.assert_close(call(x), RMSNormFwdOp(24)(x))
        assert op.serving_target == "flaky"
    finally:
        unregister_target("flaky")


def test_an_unknown_target_fails_inside_a_compiled_call_too() -> None:
    op = RMSNormFwdOp(24, target="nowhere")
    with pytest.raises(TargetError, match="no target is named 'nowhere'"):
        torch.compile(op, backend="aot_eager", fullgraph=True)(torch.randn(2, 24))
    assert op.serving_target is None


def test_the_key_is_a_string_and_a_constant_of_the_graph() -> None:
    op = RMSNormFwdOp(24)
    recorder = GraphRecorder("aot_eager")
    torch.compile(op, backend=recorder, fullgraph=True, dynamic=True)(torch.randn(2, 24))
    (node,) = [n for n in recorder.graphs[0].graph.nodes if n.op == "call_function"]
    assert node.args[-1] == op._key
    assert type(op._key) is str


def test_an_op_without_its_boundary_compiles_in_neither_state() -> None:
    """Cold, dynamo traces into the kernel's build; warm, into what looks the kernel up."""
    tilelang = pytest.importorskip("tilelang")
    import tilelang.language as T

    @tilelang.jit(target="c")  # type: ignore[untyped-decorator]
    def doubled(n: int) -> Any:
        @T.prim_func  # type: ignore[untyped-decorator]
        def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):  # type: ignore[no-untyped-def, valid-type]
            for i in T.serial(n):
                y[i] = x[i] + x[i]

        return kernel

    class NoBoundary:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            doubled(x.numel())(x, y)
            return y

    x = torch.randn(8)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(NoBoundary(), backend="eager", fullgraph=True)(x)
    op = NoBoundary()
    torch.testing.assert_close(op(x), 2 * x)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(op, backend="eager", fullgraph=True)(x)


COMPOSITE = """
name = "NormTwiceFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Normalizes, scales, normalizes."
formula = "y = norm(2 * norm(x))"
reference = "torch.nn.functional.rms_norm"

[signature.dims]
"*B" = "leading axes"
N = "columns"

[signature.dtypes]
T = ["float32"]

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]

[[composition]]
op = "RMSNormFwdOp"
count = 2
"""

TABLE = """
name = "RampFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "A ramp of a given length."
formula = "y[i] = i"
reference = "torch.arange"

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
"""


class NormTwiceFwdOp(Op, entry=load_text(COMPOSITE, path=Path("norm_twice_fwd.toml"))):
    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)
        self.first = RMSNormFwdOp(8, target=target)
        self.second = RMSNormFwdOp(8, target=target)

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(self.first(x) * 2)


class RampFwdOp(Op, entry=load_text(TABLE, path=Path("ramp_fwd.toml"))):
    def __init__(self, length: int, device: Any = "cpu", *, target: str | None = None) -> None:
        self.length = length
        self.device = device
        super().__init__(target=target)

    def forward(self) -> torch.Tensor:
        return torch.arange(self.length, dtype=torch.float32, device=self.device)


def test_a_composite_has_no_boundary_and_its_sub_ops_are_the_nodes() -> None:
    assert NormTwiceFwdOp.compile_op_names == ()
    recorder = GraphRecorder("aot_eager")
    op, x = NormTwiceFwdOp(target="reference"), torch.randn(2, 8)
    y = torch.compile(op, backend=recorder, fullgraph=True)(x)
    (calls,) = recorder.calls
    assert [call for call in calls if call.startswith("tileops")] == [OPERATOR, OPERATOR]
    torch.testing.assert_close(y, op(x))


def test_an_op_without_a_call_time_tensor_has_no_boundary() -> None:
    assert RampFwdOp.compile_op_names == ()
    op = RampFwdOp(5)
    torch.testing.assert_close(op(), torch.arange(5.0))
    compiled = torch.compile(lambda x: op() + x, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(5)), torch.arange(5.0) + 1)


def test_guards_send_another_dtype_to_another_graph_and_the_same_back() -> None:
    op = RMSNormFwdOp(24)
    recorder = GraphRecorder("aot_eager")
    compiled = torch.compile(op, backend=recorder, fullgraph=True)
    for dtype in (torch.float32, torch.float16, torch.float32):
        assert compiled(torch.randn(2, 24).to(dtype)).dtype is dtype
    assert len(recorder.graphs) == 2
