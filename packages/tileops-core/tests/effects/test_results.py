"""Results that a target gets wrong: refused at once, since a compiler would compute with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch_config
from torch.multiprocessing.reductions import StorageWeakRef

from tileops.core import results as results_module
from tileops.core import serve as serve_module
from tileops.core.errors import ResultError

X = (4, 4)


def workspace() -> Callable[..., Any]:
    """A target that fills one buffer of its own at every call."""
    buffers: dict[Any, torch.Tensor] = {}

    def act(x: torch.Tensor) -> torch.Tensor:
        room = buffers.setdefault(x.shape, torch.empty(x.shape))
        return torch.mul(x, 2, out=room)

    return act


def two_workspaces() -> Callable[..., Any]:
    """The same with two in turn, as double buffering does."""
    rooms = [torch.empty(X), torch.empty(X)]

    def act(x: torch.Tensor) -> torch.Tensor:
        rooms.reverse()
        return torch.mul(x, 2, out=rooms[0])

    return act


def says(came: str, needs: str, op: str = "TwiceFwdOp", result: str = "y") -> str:
    return (
        f"{op}: the result {result!r} of the target 'liar' {came}, but the signature needs "
        f"{needs}; mend the target"
    )


ONE: dict[str, tuple[Callable[..., Any], str]] = {
    "its input": (
        lambda x: x,
        says("shares memory with the argument 'x'", "memory of its own"),
    ),
    "a view of its input": (
        lambda x: x.view(16).view(4, 4),
        says("shares memory with the argument 'x'", "memory of its own"),
    ),
    "its input through NumPy": (
        lambda x: torch.from_numpy(x.numpy()),
        says("shares memory with the argument 'x'", "memory of its own"),
    ),
    "a transposed result": (
        lambda x: (x * 2).t().contiguous().t(),
        says("has strides [1, 4]", "a contiguous tensor"),
    ),
    "an expanded result": (
        lambda x: torch.zeros(4).expand(4, 4),
        says("has strides [0, 1]", "a contiguous tensor"),
    ),
    "another shape": (lambda x: (x * 2)[:3], says("has shape [3, 4]", "[4, 4]")),
    "another rank": (lambda x: (x * 2)[None], says("has shape [1, 4, 4]", "[4, 4]")),
    "another dtype": (lambda x: x.double() * 2, says("has dtype float64", "float32")),
    "another device": (lambda x: (x * 2).to("meta"), says("is on meta", "cpu")),
    "None": (lambda x: None, says("is of type NoneType", "a Tensor")),
    "a list": (lambda x: [x * 2], says("is of type list", "a Tensor")),
    "a number": (lambda x: 2.0, says("is of type float", "a Tensor")),
    "too many": (lambda x: (x * 2, x * 3), says("is of type tuple", "a Tensor")),
    "a sparse result": (
        lambda x: (x * 2).to_sparse(),
        says("has the layout torch.sparse_coo", "torch.strided"),
    ),
    "a nested result": (
        lambda x: torch.nested.nested_tensor([x * 2]),
        says("is a nested tensor", "a plain one"),
    ),
    "a negated view": (
        lambda x: torch._neg_view(x * -2),
        says("is a lazily negated view", "its values in memory"),
    ),
    "a leaf that requires grad": (
        lambda x: (x * 2).requires_grad_(),
        says("requires grad", "a tensor without a gradient"),
    ),
}


def call(ops: ModuleType, act: Callable[..., Any], op: Any, *arguments: Any, **named: Any) -> Any:
    ops.liar.act = act
    return op(*arguments, **named)


def good(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("name", ONE)
def test_a_wrong_result_is_refused_and_the_next_good_call_works(ops: ModuleType, name: str) -> None:
    act, text = ONE[name]
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(X)
    for _ in range(2):
        with pytest.raises(ResultError) as error:
            call(ops, act, op, x)
        assert str(error.value) == text
        torch.testing.assert_close(call(ops, good, op, x), x * 2)
    # Warm: a target that allocates by itself is checked at every call.
    with pytest.raises(ResultError) as error:
        call(ops, act, op, x)
    assert str(error.value) == text
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    with pytest.raises(ResultError) as error:
        call(ops, act, compiled, x)
    assert str(error.value) == text
    torch.testing.assert_close(call(ops, good, compiled, x), x * 2)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (
            lambda x: (x * 2, x[:, 0].clone()),
            "MomentsFwdOp: the target 'liar' returned 2 results, but the signature has 3 "
            "(y, mean, rstd)",
        ),
        (
            lambda x: (x * 2, x[:, 0].clone(), x[:, 0].clone(), x),
            "MomentsFwdOp: the target 'liar' returned 4 results, but the signature has 3 "
            "(y, mean, rstd)",
        ),
        (
            lambda x: None,
            "MomentsFwdOp: the target 'liar' returned 1 results, but the signature has 3 "
            "(y, mean, rstd)",
        ),
        (
            lambda x: (x * 2, None, x[:, 0].clone()),
            says("is of type NoneType", "a Tensor", "MomentsFwdOp", "mean"),
        ),
        (
            lambda x: (x * 2, *torch.zeros(2, 4)),
            says(
                "shares memory with the result 'mean'", "memory of its own", "MomentsFwdOp", "rstd"
            ),
        ),
        (
            lambda x: (y := x * 2, y.view(-1)[:4], x[:, 0].clone()),
            says("shares memory with the result 'y'", "memory of its own", "MomentsFwdOp", "mean"),
        ),
    ],
    ids=["too few", "too many", "None", "one is None", "two of one buffer", "a view of another"],
)
def test_several_results(ops: ModuleType, act: Any, text: str) -> None:
    op, x = ops.MomentsFwdOp(target="liar"), torch.randn(X)
    right = lambda x: (x * 2, x[:, 0].clone(), x[:, 1].clone())  # noqa: E731
    for _ in range(2):
        with pytest.raises(ResultError) as error:
            call(ops, act, op, x)
        assert str(error.value) == text
        assert len(call(ops, right, op, x)) == 3


def test_a_result_where_the_signature_has_none(ops: ModuleType) -> None:
    op, by = ops.BumpFwdOp(target="liar"), torch.ones(4)
    with pytest.raises(ResultError) as error:
        call(ops, lambda x, by: x.add_(by), op, torch.zeros(X), by)
    assert str(error.value) == (
        "BumpFwdOp: the target 'liar' returned 1 results, but the signature has 0 (none)"
    )
    x = torch.zeros(X)
    assert call(ops, lambda x, by: ops.Bump.reference(None, x, by), op, x, by) is None
    assert torch.equal(x, torch.ones(X))


def test_a_new_tensor_in_place_of_the_written_one(ops: ModuleType) -> None:
    """The caller's tensor would be returned unwritten."""
    op, x = ops.ClipFwdOp(inplace=True, target="liar"), torch.randn(X)
    with pytest.raises(ResultError) as error:
        call(ops, lambda x: x.clamp(min=0), op, x)
    assert str(error.value) == says("is a new tensor", "the caller's own, filled", "ClipFwdOp")
    assert call(ops, lambda x: x.clamp_(min=0), op, x) is x


def test_a_write_that_the_branch_does_not_declare(ops: ModuleType) -> None:
    """A compiler does not know of it, and may have put other data there."""
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(X)
    with pytest.raises(ResultError) as error:
        call(ops, lambda x: x.mul_(2).clone(), op, x)
    assert str(error.value) == (
        "TwiceFwdOp: the target 'liar' wrote the argument 'x', but the signature of this call "
        "does not let it; mend the target"
    )
    torch.testing.assert_close(call(ops, good, op, x), x * 2)


@pytest.mark.parametrize(("make", "rooms"), [(workspace, 1), (two_workspaces, 2)])
def test_a_workspace_that_is_reused_from_call_to_call(
    ops: ModuleType, make: Any, rooms: int
) -> None:
    """The first caller's result would change under it."""
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(X)
    act = make()
    for _ in range(rooms):
        call(ops, act, op, x)
    with pytest.raises(ResultError) as error:
        call(ops, act, op, x)
    assert str(error.value) == says(
        "has the memory that an earlier call returned", "memory of its own"
    )
    torch.testing.assert_close(call(ops, good, op, x), x * 2)


def test_a_workspace_that_two_instances_share(ops: ModuleType) -> None:
    first, second = ops.TwiceFwdOp(target="liar"), ops.TwiceFwdOp(target="liar")
    x, act = torch.randn(X), workspace()
    call(ops, act, first, x)
    with pytest.raises(ResultError) as error:
        call(ops, act, second, x)
    assert str(error.value) == says(
        "has the memory that an earlier call returned", "memory of its own"
    )


def test_a_workspace_behind_a_view(ops: ModuleType) -> None:
    """A new view each time is another tensor over the same storage."""
    op, x, room = ops.TwiceFwdOp(target="liar"), torch.randn(X), torch.empty(64)
    act = lambda x: torch.mul(x, 2, out=room[:16].view(4, 4))  # noqa: E731
    call(ops, act, op, x)
    with pytest.raises(ResultError):
        call(ops, act, op, x)


def test_fresh_results_are_never_taken_for_a_workspace(ops: ModuleType) -> None:
    """The allocator gives freed memory out again, at the same address."""
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(X)
    addresses = set()
    for _ in range(200):
        addresses.add(call(ops, good, op, x).data_ptr())
    assert len(addresses) < 200
    assert len(op._state.returned) <= results_module.REMEMBERED


def test_an_op_that_hands_on_what_another_op_returned(ops: ModuleType) -> None:
    """Its result is new, although the inner call returned it first."""
    inner = ops.TwiceFwdOp()

    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(X)
    for _ in range(3):
        torch.testing.assert_close(call(ops, inner, op, x), x * 2)


def test_results_that_do_not_hold_memory_alive(ops: ModuleType) -> None:
    """What is remembered of a result is not its memory."""
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(X)
    y = call(ops, good, op, x)
    storage = StorageWeakRef(y.untyped_storage())
    assert not storage.expired()
    del y
    assert storage.expired()


# -- what each of these would do: right numbers in eager, wrong ones under inductor ----------------


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes the enforcement away, to show what it prevents."""

    def believe(
        op: Any, target: str, specs: Any, buffers: Any, result: Any, *_: Any, **__: Any
    ) -> Any:
        return dict(zip(specs, result if isinstance(result, tuple) else (result,), strict=True))

    monkeypatch.setattr(serve_module, "enforce", believe)
    # PyTorch's own check, of aliasing only, which warns; it raises where CI is set.
    setting = "error_on_custom_op_aliasing"
    known = hasattr(functorch_config, setting)
    with functorch_config.patch({setting: False}) if known else contextlib.nullcontext():
        yield


@pytest.mark.parametrize(
    "act", [lambda x: x, lambda x: x.view(-1).view(x.shape)], ids=["its input", "a view of it"]
)
def test_unchecked_an_input_returned_is_overwritten_by_inductor(
    ops: ModuleType, unchecked: None, act: Any
) -> None:
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(64)
    ops.liar.act = act

    def function(x: torch.Tensor) -> Any:
        t = x + 1
        y = op(t)
        # The last reader of ``t``, and after ``y``: inductor writes into the memory of ``t``.
        return y, t * y.sum()

    eager = function(x)
    compiled = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(compiled[1], eager[1])
    assert not torch.equal(compiled[0], eager[0])


def test_unchecked_a_transposed_result_is_read_in_the_wrong_order(
    ops: ModuleType, unchecked: None
) -> None:
    """Inductor's own assertion is off here, as a user may have it: ``size_asserts``."""
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(8, 8)
    ops.liar.act = lambda x: (x * 2).t().contiguous().t()
    function = lambda x: op(x) + x  # noqa: E731
    torch.testing.assert_close(function(x), x * 3)
    with torch._inductor.config.patch(size_asserts=False):
        compiled = torch.compile(function, fullgraph=True)(x)
    assert not torch.allclose(compiled, x * 3)


def test_unchecked_two_results_of_one_buffer_are_overwritten(
    ops: ModuleType, unchecked: None
) -> None:
    op, x = ops.MomentsFwdOp(target="liar"), torch.randn(8, 8)

    def act(x: torch.Tensor) -> Any:
        room = x[:, 0] * 2
        return x * 2, room, room.view(-1)

    ops.liar.act = act

    def function(x: torch.Tensor) -> Any:
        _, mean, rstd = op(x)
        z = mean.sin()
        return z, rstd + 0, rstd

    eager = function(x)
    compiled = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(compiled[0], eager[0])
    assert not torch.equal(compiled[2], eager[2])


def test_unchecked_a_workspace_changes_what_was_returned_before(
    ops: ModuleType, unchecked: None
) -> None:
    op, x = ops.TwiceFwdOp(target="liar"), torch.randn(8)
    ops.liar.act = workspace()
    first = op(x)
    op(x + 1)
    assert torch.equal(first, (x + 1) * 2)
