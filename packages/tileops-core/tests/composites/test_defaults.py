"""Default targets, where composites share sub-ops that others may have called before."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
from typing import Any

import pytest
import torch
from composite_ops import PROJECT, OuterFwdOp, ProjectedFwdOp, ScaledFwdOp, entry_of, made

from tileops.core import Op, Target, register_target, set_default_target, using_target
from tileops.core.errors import TargetError
from tileops.core.targets import unregister_target
from tileops.core.testing import GraphRecorder

# Shared sub-ops keep who served them first, so each test has factors of its own.
FACTORS = itertools.count(1024.0)
X, W = torch.randn(4, 8), torch.randn(6, 8)


def test_a_default_that_is_set_where_it_is_built_serves_it() -> None:
    """It was passed over where the shared sub-ops had served an equal composite before."""
    factor = next(FACTORS)
    keep = OuterFwdOp(factor)
    keep(X, W)
    assert keep.serving_target == "reference"
    with using_target("noting"):
        eager, traced = OuterFwdOp(factor), ProjectedFwdOp(factor)
        eager(X, W)
        torch.compile(traced, backend="aot_eager", fullgraph=True)(X, W)
        assert eager.inner.parts == traced.parts
    assert eager.serving_target == traced.serving_target == "noting"
    assert eager.inner is not keep.inner
    set_default_target("noting")
    try:
        assert OuterFwdOp(factor).inner is eager.inner
    finally:
        set_default_target(None)
    assert OuterFwdOp(factor).inner is keep.inner


def test_it_holds_after_the_block_and_in_other_threads() -> None:
    """It was dropped at a first call outside, in silence, and what was built under it later was
    refused."""
    factor = next(FACTORS)
    with using_target("noting"):
        op, part, elsewhere = OuterFwdOp(factor), ScaledFwdOp.shared(factor), OuterFwdOp(factor)
        worker = threading.Thread(target=lambda: elsewhere(X, W))
        worker.start()
        worker.join()
    op(X, W)
    part(X)
    assert [one.serving_target for one in (op, part, elsewhere)] == ["noting"] * 3
    with using_target("noting"):
        OuterFwdOp(factor)(X, W)
    with using_target("reference"):  # the one that it was built under goes before
        again = copy.deepcopy(op)
        again(X, W)
    assert again.serving_target == "noting"


def test_a_first_call_that_fails_is_held_against_nobody() -> None:
    factor = next(FACTORS)

    def half(op: Op, interface: str, call: Any) -> Any:
        if call.factor == factor + 0.5:
            raise TargetError("half serves no half")
        return lambda x: x * call.factor

    class HalvesFwdOp(Op, entry=entry_of("HalvesFwdOp", PROJECT % ("ScaledFwdOp", 2))):
        factor: float
        biased: bool

        def __init__(
            self, factor: float = 2.0, biased: bool = False, *, target: str | None = None
        ) -> None:
            self.factor, self.biased = factor, biased
            super().__init__(target=target)
            self.parts = tuple(self.sub_op(ScaledFwdOp, factor + more) for more in (0.0, 0.5))

        def forward(self, x: Any, weight: Any, bias: Any = None) -> Any:
            scaled = self.parts[1](self.parts[0](x))
            return scaled @ weight.T, scaled

    register_target(Target("half", lambda device: False, half))
    try:
        op, other = HalvesFwdOp(factor), HalvesFwdOp(factor)
        with using_target("half"), pytest.raises(TargetError, match="half serves no half"):
            op(X, W)
    finally:
        unregister_target("half")
    for one in (op, other, HalvesFwdOp(factor)):
        one(X, W)
        assert one.serving_target == "reference"


def test_copies_and_pickles_compile_to_the_graph_of_what_they_are_of() -> None:
    """They noted their sub-ops in another order, on which dynamo guarded."""
    op, recorder = OuterFwdOp(next(FACTORS)), GraphRecorder("aot_eager")
    torch._dynamo.reset()
    again = pickle.loads(pickle.dumps(op))
    for one in (op, copy.deepcopy(op), copy.copy(op), again, OuterFwdOp(op.factor)):
        torch.compile(one, backend=recorder, fullgraph=True)(X, W)
    assert len(recorder.graphs) == 1


LATE = (
    "{name}: its calls on cpu are to be served by the target 'noting', but ScaledFwdOp in it, "
    "which equal ops share, is served by 'reference' there since its first call; build the {name} "
    "while 'noting' is the default, or with target='noting'"
)


def test_a_first_call_under_another_default_than_its_sub_ops_obeyed_is_refused() -> None:
    """It was served by the other target, and nothing said so."""
    factor = next(FACTORS)
    keep, late = ProjectedFwdOp(factor), ProjectedFwdOp(factor)
    keep(X, W)
    says = LATE.format(name="ProjectedFwdOp")
    with using_target("noting"):
        with pytest.raises(TargetError) as error:
            late(X, W)
        assert str(error.value) == says
        with pytest.raises(torch._dynamo.exc.Unsupported) as traced:
            torch.compile(late, backend="aot_eager", fullgraph=True)(X, W)
        assert says in str(traced.value)
        with pytest.raises(TargetError) as broken:
            torch.compile(late, backend="aot_eager")(X, W)
        assert str(broken.value) == says
        keep(X, W)  # which keeps the target of its first call
    assert keep.serving_target == "reference"
    late(X, W)
    # The other way round: what a default chose is not what a call without one gets.
    other = ProjectedFwdOp(factor + 0.125)
    with using_target("noting"):
        other(X, W)
    with pytest.raises(TargetError, match="are to be served by the target 'reference', but Scaled"):
        ProjectedFwdOp(factor + 0.125)(X, W)


def test_thirty_two_layers_under_a_default_compile_to_one_graph() -> None:
    factor, recorder = next(FACTORS), GraphRecorder("aot_eager")
    torch._dynamo.reset()
    with using_target("noting"):
        for op in [OuterFwdOp(factor) for _ in range(32)]:
            torch.compile(op, backend=recorder, fullgraph=True)(X, W)
    assert len(recorder.graphs) == 1
    assert [call.factor for call in made] == [factor]


def test_an_unknown_target_is_named_for_the_composite() -> None:
    """The error named an op inside."""
    with pytest.raises(TargetError, match=r"^OuterFwdOp: no target is named 'nothing'; the"):
        OuterFwdOp(next(FACTORS), target="nothing")(X, W)
