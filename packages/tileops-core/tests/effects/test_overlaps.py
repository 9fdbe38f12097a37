"""Arguments that share memory, one of them written: refused, where they truly do."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchRuntimeError

from tileops.core.errors import ArgumentError

from .cases import CASES, LAYOUTS, Tensors, check, randn, turn


def shares(first: str, second: str) -> str:
    return (
        f"TurnFwdOp: {first} is written and shares memory with {second}; pass tensors that do "
        f"not overlap, such as {second}.clone()"
    )


def overlapping() -> dict[str, tuple[Callable[[], Tensors], str]]:
    def rows() -> Tensors:
        base = randn(5, 8)
        return {"q": base[:3], "k": base[2:]}

    def columns() -> Tensors:
        base = randn(3, 12)
        return {"q": base[:, :8], "k": base[:, 4:]}

    def same() -> Tensors:
        x = randn(3, 8)
        return {"q": x, "k": x}

    def out() -> Tensors:
        x = randn(3, 8)
        return {"q": randn(3, 8), "k": x, "out": x.view(24).view(3, 8)}

    def crossed() -> Tensors:
        x = randn(8, 8)
        return {"q": x[:3], "k": x.t()[:3]}

    return {
        "rows": (rows, shares("q", "k")),
        "columns": (columns, shares("q", "k")),
        "same": (same, shares("q", "k")),
        "out": (out, shares("k", "out")),
        "crossed": (crossed, shares("q", "k")),
    }


OVERLAPS = overlapping()


@pytest.mark.parametrize("name", OVERLAPS)
def test_an_overlap_is_refused_cold_warm_and_at_the_fake(ops: ModuleType, name: str) -> None:
    inputs, text = OVERLAPS[name]
    op = ops.TurnFwdOp(target="filling")
    good = CASES["all suffixes"]

    def refused() -> None:
        given = inputs()
        before = {key: tensor.clone() for key, tensor in given.items()}
        with pytest.raises(ArgumentError) as error:
            op(**given)
        assert str(error.value) == text
        assert all(torch.equal(given[key], before[key]) for key in given)

    refused()
    for layout in ("plain", "transposed"):
        check(good, op, {n: LAYOUTS[layout](t) for n, t in good.inputs().items()})
    without_out = {"q": randn(3, 8), "k": randn(3, 8)}
    op(**without_out)
    refused()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    with pytest.raises(TorchRuntimeError) as error:
        compiled(**inputs())
    assert text in str(error.value)
    check(good, compiled, good.inputs())


def test_an_overlap_of_another_storage_object_is_refused(ops: ModuleType) -> None:
    """A round trip through NumPy gives a second storage over the same memory."""
    pytest.importorskip("numpy")
    x = randn(3, 8)
    op = ops.TurnFwdOp()
    for _ in range(2):
        with pytest.raises(ArgumentError) as error:
            op(x, torch.from_numpy(x.numpy())[:])
        assert str(error.value) == shares("q", "k")


@pytest.mark.parametrize(
    "split",
    [
        lambda room: (room[:3, :8], room[3:, :8]),
        lambda room: (room[:3, :8], room[:3, 8:]),
        lambda room: (room[:3, ::2], room[:3, 1::2]),
        lambda room: (room[::2, :8], room[1::2, :8]),
    ],
    ids=["rows", "columns", "interleaved columns", "interleaved rows"],
)
@pytest.mark.parametrize("backend", ["none", "aot_eager", "dynamic", "inductor"])
def test_views_of_one_tensor_that_share_no_element_are_written(
    ops: ModuleType, split: Any, backend: str
) -> None:
    """Query and key of a fused projection: refused where only storages were compared."""
    op = ops.TurnFwdOp(target="filling")
    function = lambda room: op(*split(room))  # noqa: E731
    if backend == "dynamic":
        # A row's stride is a symbol then, and columns were taken for overlapping.
        function = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    elif backend != "none":
        function = torch.compile(function, backend=backend, fullgraph=True)
    room = randn(6, 16)
    for _ in range(2):
        wanted = room.clone()
        expected = turn(*split(wanted))[0]
        torch.testing.assert_close(function(room), expected)
        torch.testing.assert_close(room, wanted)


@pytest.mark.parametrize("name", OVERLAPS)
def test_an_overlap_is_refused_where_all_sizes_are_symbols(ops: ModuleType, name: str) -> None:
    inputs, text = OVERLAPS[name]
    op = ops.TurnFwdOp(target="filling")
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True, dynamic=True)
    with pytest.raises(TorchRuntimeError) as error:
        compiled(**inputs())
    assert text in str(error.value)


def test_a_size_that_is_not_known_yet_does_not_make_views_overlap(ops: ModuleType) -> None:
    op = ops.TurnFwdOp()
    compiled = torch.compile(
        lambda room: op(room[:, :8], room[:, 8:]), backend="aot_eager", fullgraph=True
    )
    for rows in (3, 5, 9):
        room = randn(rows, 16)
        torch._dynamo.mark_dynamic(room, 0)
        wanted = room.clone()
        expected = turn(wanted[:, :8], wanted[:, 8:])[0]
        torch.testing.assert_close(compiled(room), expected)
        torch.testing.assert_close(room, wanted)


@pytest.mark.parametrize(
    ("x", "strides"),
    [
        (lambda: torch.zeros(8).expand(3, 8), "[0, 1]"),
        (lambda: torch.zeros(32).as_strided((3, 8), (1, 1)), "[1, 1]"),
        (lambda: torch.zeros(1).expand(2**31 + 8).unfold(0, 8, 2**28), "[0, 0]"),
    ],
    ids=["expanded", "sliding window", "more than 2^31 elements"],
)
def test_a_written_tensor_that_overlaps_itself_is_refused(
    ops: ModuleType, x: Any, strides: str
) -> None:
    """A sliding window was let through: copied in and back, its elements overwrote each other."""
    op = ops.BumpFwdOp()
    text = (
        f"BumpFwdOp: x is written, and several of its elements share one memory location "
        f"(strides {strides}); pass a tensor that owns its elements, such as x.contiguous()"
    )
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        with pytest.raises(ArgumentError) as error:
            op(x(), torch.ones(8))
        assert str(error.value) == text
        check(CASES["no output"], op, CASES["no output"].inputs())
    with pytest.raises(TorchRuntimeError) as error:
        compiled(x(), torch.ones(8))
    assert text in str(error.value)
    check(CASES["no output"], compiled, CASES["no output"].inputs())
