"""A week of serving: models reloaded, batches of every size, and memory that does not grow."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core import builds_after_warm_up, instances, programs, serve, warm_up_done
from tileops.core.testing import GraphRecorder


class Model(torch.nn.Module):
    """Two layers that hold one shared op, as a model that is read from a checkpoint would."""

    def __init__(self, cls: Any) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(4))
        self.second = torch.nn.Parameter(torch.randn(4))
        self.op = cls.shared(target="building")

    def forward(self, x: torch.Tensor) -> Any:
        return self.op(self.op(x, self.first), self.second)


def serve_once(cls: Any, recorder: GraphRecorder) -> Model:
    model = Model(cls)
    x = torch.randn(3, 4)
    with torch.no_grad():
        y = torch.compile(model, backend=recorder, fullgraph=True)(x)
        torch.testing.assert_close(y, x + model.first + model.second)
    return model


@pytest.mark.parametrize("held", [True, False], ids=["held", "let go"])
def test_a_reloaded_model_recompiles_nothing_and_builds_nothing(
    ops: ModuleType, held: bool
) -> None:
    """Also where the old model is gone before the new one is built: twelve reloads used to be
    more graphs than dynamo makes of one function, and ``fullgraph=True`` stopped."""
    recorder = GraphRecorder("aot_eager")
    keep = ops.AddFwdOp.shared(target="building") if held else None
    gone = weakref.ref(serve_once(ops.AddFwdOp, recorder))
    built = list(ops.events)
    warm_up_done()
    for _ in range(12):
        gc.collect()
        assert gone() is None
        gone = weakref.ref(serve_once(ops.AddFwdOp, recorder))
    assert len(recorder.graphs) == 1
    assert [event for event in ops.events if event != "launch"] == [("build", 4)] == built[:1]
    assert builds_after_warm_up() == 0
    del keep


def test_an_eager_shared_op_that_nobody_holds_is_let_go_and_its_programs_are_not(
    ops: ModuleType,
) -> None:
    """A reloaded eager model plans its calls again, and builds nothing."""
    op = ops.AccumulateFwdOp.shared(target="building")
    op(torch.zeros(3, 4), torch.ones(4))
    gone = weakref.ref(op)
    del op
    gc.collect()
    assert gone() is None
    again = ops.AccumulateFwdOp.shared(target="building")
    assert not again._plans
    warm_up_done()
    again(torch.zeros(3, 4), torch.ones(4))
    assert (ops.events, builds_after_warm_up()) == ([("build", 4), "launch", "launch"], 0)


def test_an_op_that_is_not_shared_is_one_graph_a_reload(ops: ModuleType) -> None:
    """What ``shared()`` is for: each new instance has a key of its own, a constant of its graph."""
    recorder = GraphRecorder("aot_eager")
    for _ in range(3):
        op = ops.AddFwdOp(target="building")

        def call(x: torch.Tensor, op: Any = op) -> Any:
            return op(x)

        torch.compile(call, backend=recorder, fullgraph=True)(torch.zeros(3, 4))
    assert len(recorder.graphs) == 3


def test_plans_and_kernels_of_one_instance_are_bounded(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of batch sizes and of widths, on one instance that serves all week."""
    for name in ("_MOST_PLANS", "_MOST_KERNELS"):
        monkeypatch.setattr(serve, name, 64)
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 64)
    op = ops.AddFwdOp(target="building")
    for rows in range(1, 1000):
        op(torch.empty(rows, 4))
    assert len(op._plans) <= 64
    assert len(op._state.kernels) == len(programs._programs) == 1
    for width in range(1, 1000):
        op(torch.empty(1, width))
        assert len(op._state.kernels) <= 64
        assert len(op._plans) <= 64
        assert len(programs._programs) <= 64
    ops.events.clear()
    op(torch.empty(1, 999))
    assert ops.events == ["launch"]


def test_the_memory_of_many_shapes_does_not_grow(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python memory after twice as many shapes: nothing else keeps something for each."""
    monkeypatch.setattr(serve, "_MOST_PLANS", 256)
    op = ops.AddFwdOp(target="building")
    x = torch.empty(4 * 256 * 6, 4)

    def call(first: int) -> None:
        for rows in range(first, first + 256 * 4):
            op(x[:rows])
        ops.events.clear()

    call(1)
    tracemalloc.start()
    call(2001)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    call(4001)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000


def test_thousands_of_instances_leave_nothing(ops: ModuleType) -> None:
    """A service that builds its ops for each request: all of it goes with the instance."""
    ops.AddFwdOp(target="building")(torch.zeros(3, 4))
    tables = (instances.live, instances._held, instances._recipes, instances._next)
    tables += (programs._programs, programs._flights)
    gc.collect()
    before = [len(table) for table in tables]
    for _ in range(3000):
        ops.AddFwdOp(target="building")(torch.empty(3, 4))
        ops.AddFwdOp.shared(target="building")
    gc.collect()
    assert [len(table) for table in tables] == before
