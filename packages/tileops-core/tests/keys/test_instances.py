"""Keys and the instances behind them: never reused, and found again after an instance is gone."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from key_samples import PairFwdOp, ScaleFwdOp
from torch.fx.experimental.proxy_tensor import make_fx

from tileops.core import Op, instances
from tileops.core.instances import find

OPERATOR = torch.ops.tileops.keys_scale_fwd


def number(key: str) -> int:
    return int(key.rpartition("#")[2])


def test_a_key_is_never_given_twice() -> None:
    """Not after its instance was collected, and not to two threads."""
    first = ScaleFwdOp(3)._key
    gc.collect()
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: ScaleFwdOp(3)._key, range(400)))
    assert sorted(map(number, keys)) == list(range(number(first) + 1, number(first) + 401))


def test_an_op_that_outlives_the_modules_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the interpreter ended, it printed "Exception ignored in: ... _forget"."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    op = ScaleFwdOp(3)
    key = op._key
    table = instances.live
    monkeypatch.setattr(instances, "live", None)
    del op
    gc.collect()
    assert ignored == []
    assert key not in table


def test_an_instance_that_was_never_traced_leaves_nothing() -> None:
    """A program that builds ops over and over would otherwise grow for ever."""
    x = torch.randn(2, 5)
    ScaleFwdOp(5)(x)
    gc.collect()
    sizes = [len(instances.live), len(instances._recipes), len(instances._held)]
    counters = len(instances._next)
    for turn in range(10_000):
        op = ScaleFwdOp(5)
        if turn % 100 == 0:
            op(x)
    del op
    gc.collect()
    assert [len(instances.live), len(instances._recipes), len(instances._held)] == sizes
    assert len(instances._next) == counters


def test_a_compiled_function_works_on_after_its_instance_is_gone() -> None:
    """With the params and the explicit target that the instance had."""
    x = torch.randn(2, 6)
    op = ScaleFwdOp(6, 0.25, target="reference")
    key, gone = op._key, weakref.ref(op)
    graphs: list[Callable[..., Any]] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph.forward)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(op, backend=keep, fullgraph=True)(x)
    del op
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None
    torch.testing.assert_close(graphs[0](x)[0], x * 0.25)
    revived = find(key)
    assert (revived._key, revived._explicit_target) == (key, "reference")
    assert find(key) is revived


def test_a_graph_traced_with_real_tensors_keeps_its_target() -> None:
    """make_fx runs no fake then: the key used to be revived with the default target."""
    ops = [ScaleFwdOp(6, 0.5, target="reference")]
    key, x = ops[0]._key, torch.randn(2, 6)
    graph = make_fx(lambda x: ops[0](x))(x)
    ops.clear()
    gc.collect()
    assert instances.live.get(key) is None
    torch.testing.assert_close(graph(x), x * 0.5)
    assert find(key)._explicit_target == "reference"


def test_a_number_that_came_from_elsewhere_is_not_given_here() -> None:
    """An artefact of another process brought it; the next instance built here used to get it."""
    description = ScaleFwdOp(11)._description
    x = torch.randn(2, 11)
    torch.testing.assert_close(OPERATOR(x, None, f"{description}#7"), x * 2)
    assert [number(ScaleFwdOp(11)._key) for _ in range(2)] == [8, 9]
    OPERATOR(x, None, f"{description}#3")
    assert number(ScaleFwdOp(11)._key) == 10


def test_an_instance_made_in_a_constructor_has_its_own_key() -> None:
    """While a key is revived the op is built, and what its constructor builds before it used to
    take the key."""

    class NestedFwdOp(Op, abstract=True):
        inner: Any

        def __init__(self, *, target: str | None = None) -> None:
            self.inner = ScaleFwdOp(2)
            super().__init__(target=target)

        forward = PairFwdOp.forward

    outer = type("PairFwdOp", (NestedFwdOp,), {"__module__": __name__}, entry=PairFwdOp.entry)
    try:
        key = f"{outer._identity}()#4711"
        revived = find(key)
        assert (type(revived), revived._key) == (outer, key)
        assert revived.inner._description.startswith("ScaleFwdOp@")
        assert find(revived.inner._key) is revived.inner
    finally:
        instances.known_class(PairFwdOp._identity, PairFwdOp)


def test_eight_threads_revive_one_instance() -> None:
    key = f"{ScaleFwdOp(13)._description}#900"
    barrier = threading.Barrier(8)

    def ask(_: int) -> Any:
        barrier.wait()
        return find(key)

    with ThreadPoolExecutor(8) as pool:
        assert len({id(op) for op in pool.map(ask, range(8))}) == 1


def test_a_call_beside_an_export_keeps_its_instance() -> None:
    """The flag that says an export is running is the process's, and another thread's eager call
    used to go to the instance of the description, with the default target."""
    mine, theirs = ScaleFwdOp(4), ScaleFwdOp(4, 3.0, target="reference")
    x = torch.randn(2, 4)
    said: list[str] = []

    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            thread = threading.Thread(target=lambda: theirs(y))
            thread.start()
            thread.join()
            return mine(x)

    y = torch.randn(2, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.export.export(Layer(), (x,), strict=False)
        said += [str(one.message) for one in caught if "exported program" in str(one.message)]
    assert theirs.serving_target == "reference"
    assert said == []
