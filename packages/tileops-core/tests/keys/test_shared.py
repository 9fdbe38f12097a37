"""shared(): one live instance of a specialization and a target, and what it is for."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from key_samples import ScaleFwdOp, TypedFwdOp
from torch._dynamo.exc import FailOnRecompileLimitHit, Unsupported

from tileops.core import using_target
from tileops.core.errors import ParamError
from tileops.core.testing import GraphRecorder

X = torch.randn(3, 4)


def test_equal_spellings_are_one_op() -> None:
    op = ScaleFwdOp.shared(4)
    for other in (
        ScaleFwdOp.shared((4,)),
        ScaleFwdOp.shared([4], 2),
        ScaleFwdOp.shared(normalized_shape=torch.Size([4]), factor=2.0),
        ScaleFwdOp.shared(4, target=None),
    ):
        assert other is op


def test_another_specialization_or_target_is_another_op() -> None:
    ops = [
        ScaleFwdOp.shared(4),
        ScaleFwdOp.shared((2, 2)),
        ScaleFwdOp.shared(4, 0.0),
        ScaleFwdOp.shared(4, -0.0),
        ScaleFwdOp.shared(4, target="reference"),
        ScaleFwdOp(4),
    ]
    assert len({id(op) for op in ops}) == len({op._key for op in ops}) == len(ops)


def test_another_default_is_another_op() -> None:
    """Whoever asked inside using_target got one that another target served, and no error."""
    op = ScaleFwdOp.shared(4)
    with using_target("reference"):
        other = ScaleFwdOp.shared(4)
        assert other is not op
        assert ScaleFwdOp.shared(4) is copy.copy(other) is other
        named = ScaleFwdOp.shared(4, target="reference")
    assert ScaleFwdOp.shared(4) is op
    assert ScaleFwdOp.shared(4, target="reference") is named
    assert copy.deepcopy(other) is other


def test_nan_is_equal_to_itself_here() -> None:
    """Or each call would make a new instance, and each layer a graph of its own."""
    op = TypedFwdOp.shared(ratio=float("nan"))
    assert TypedFwdOp.shared(ratio=-float("nan")) is op


def test_it_lives_as_long_as_somebody_holds_it() -> None:
    op = ScaleFwdOp.shared(9)
    key, gone = op._key, weakref.ref(op)
    del op
    gc.collect()
    assert gone() is None
    assert ScaleFwdOp.shared(9)._key != key


def test_eight_threads_get_one_instance() -> None:
    barrier = threading.Barrier(8)

    def ask(_: int) -> Any:
        barrier.wait()
        return ScaleFwdOp.shared(17)

    with ThreadPoolExecutor(8) as pool:
        assert len({id(op) for op in pool.map(ask, range(8))}) == 1


@pytest.mark.parametrize("target", [5, ["reference"]])
def test_a_target_that_is_no_name(target: Any) -> None:
    """A list used to be looked up first, and failed as unhashable."""
    with pytest.raises(ParamError) as error:
        ScaleFwdOp.shared(4, target=target)
    assert str(error.value) == (
        f"ScaleFwdOp: target is {target!r}, but it must be the name of a target, or None"
    )


class Layer(torch.nn.Module):
    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.op(x) * 2


def compile_each(layers: list[Layer]) -> GraphRecorder:
    torch._dynamo.reset()
    recorder = GraphRecorder("aot_eager")
    for layer in layers:
        compiled = torch.compile(layer, backend=recorder, fullgraph=True)
        torch.testing.assert_close(compiled(X), X * 4)
    return recorder


def test_thirty_two_layers_with_a_shared_op_are_one_graph() -> None:
    recorder = compile_each([Layer(ScaleFwdOp.shared(4)) for _ in range(32)])
    assert recorder.calls == [["tileops::keys_scale_fwd", "<built-in function mul>"]]


def test_thirty_two_instances_are_more_graphs_than_dynamo_makes() -> None:
    """Each key is a constant of its graph: why a layer holds the shared op."""
    with pytest.raises(FailOnRecompileLimitHit):
        compile_each([Layer(ScaleFwdOp(4)) for _ in range(32)])


def test_an_op_built_in_a_loop_recompiles_each_time_and_a_shared_one_does_not() -> None:
    def call(op: ScaleFwdOp, x: torch.Tensor) -> torch.Tensor:
        return op(x)

    for build, graphs in ((ScaleFwdOp, 4), (ScaleFwdOp.shared, 1)):
        torch._dynamo.reset()
        recorder = GraphRecorder("eager")
        compiled = torch.compile(call, backend=recorder, fullgraph=True)
        held = ScaleFwdOp.shared(4)
        for _ in range(4):
            compiled(build(4), X)
        assert len(recorder.graphs) == graphs
        del held


@pytest.mark.parametrize("build", [ScaleFwdOp, ScaleFwdOp.shared], ids=["new", "shared"])
def test_an_op_built_inside_a_compiled_function(build: Any) -> None:
    """It breaks the graph, is right, and under fullgraph=True says what to do instead."""

    def call(x: torch.Tensor) -> torch.Tensor:
        return build(4)(x)

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(call, backend="eager")(X), X * 2)
    torch._dynamo.reset()
    with pytest.raises(Unsupported) as error:
        torch.compile(call, backend="eager", fullgraph=True)(X)
    assert (
        "an op is made inside compiled code, and each call would make another with a key of its "
        "own; make it, or ask for the shared one, once outside: where the layer is built"
    ) in str(error.value)
