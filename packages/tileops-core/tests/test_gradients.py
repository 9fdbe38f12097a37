"""Gradients are never lost in silence: each way of asking for one raises, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from tileops.core import Op
from tileops.core.errors import GradientError
from tileops.manifest import load_text

ENTRY = """
name = "AddIntoFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Adds y to x, in place or not, and gives twice the sum beside it."
formula = "z = x + y; d = 2 * z"
reference = "torch.add"

[signature.dims]
"*B" = "all axes"

[signature.dtypes]
T = ["float32"]

[[signature.params]]
name = "inplace"
type = "bool"

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B"]
mutated = "inplace"

[[signature.inputs]]
name = "y"
dtype = "T"
shape = ["*B"]

[[signature.outputs]]
name = "z"
dtype = "T"
shape = ["*B"]
alias = "x"

[[signature.outputs]]
name = "d"
dtype = "T"
shape = ["*B"]
"""
TEXT = (
    "AddIntoFwdOp serves inference and has no derivative; call it under torch.no_grad() or "
    "torch.inference_mode(), detach its inputs, or use the PyTorch operators that its entry's "
    "reference names where a gradient is needed"
)


class AddIntoFwdOp(Op, entry=load_text(ENTRY, path=Path("add_into_fwd.toml"))):
    def __init__(self, inplace: bool, *, target: str | None = None) -> None:
        self.inplace = inplace
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.inplace:
            x.add_(y)
            return x, x * 2
        return (x + y).contiguous(), ((x + y) * 2).contiguous()


BACKENDS = [None, "eager", "aot_eager", "inductor"]


def run(function: Callable[..., Any], backend: str | None) -> Callable[..., Any]:
    torch._dynamo.reset()
    if backend is None:
        return function
    return torch.compile(function, backend=backend, fullgraph=True)


def functions(op: AddIntoFwdOp) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Each makes a loss out of ``a`` by way of the op."""
    ones = torch.ones(4)

    def through_a_result(a: torch.Tensor) -> torch.Tensor:
        return op(a * 2, ones)[1].sum()

    def through_the_written_input(a: torch.Tensor) -> torch.Tensor:
        x = a * 2
        op(x, ones)
        return (x * 3).sum()

    def through_a_written_view(a: torch.Tensor) -> torch.Tensor:
        x = a * 2
        op(x[1:3], ones[:2])
        return (x * 3).sum()

    def through_another_input(a: torch.Tensor) -> torch.Tensor:
        x = torch.zeros(4)
        op(x, a * 1)
        return (x * 3).sum()

    found = {"result": through_a_result}
    if op.inplace:
        found["written input"] = through_the_written_input
        found["written view"] = through_a_written_view
        found["another input"] = through_another_input
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("inplace", "way"),
    [
        (False, "result"),
        (True, "result"),
        (True, "written input"),
        (True, "written view"),
        (True, "another input"),
    ],
)
def test_backward_raises(inplace: bool, way: str, backend: str | None) -> None:
    """A registration without autograd would leave the gradient None, or stale behind a write."""
    function = run(functions(AddIntoFwdOp(inplace))[way], backend)
    a = torch.ones(4, requires_grad=True)
    loss = function(a)
    assert loss.requires_grad
    with pytest.raises(GradientError) as error:
        loss.backward()
    assert str(error.value) == TEXT
    assert a.grad is None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("inplace", [False, True])
def test_the_forward_itself_works_in_grad_mode(inplace: bool, backend: str | None) -> None:
    op = AddIntoFwdOp(inplace)

    def function(a: torch.Tensor, y: torch.Tensor) -> Any:
        return op(a * 2, y)

    z, d = run(function, backend)(torch.ones(4, requires_grad=True), torch.ones(4))
    torch.testing.assert_close(z.detach(), torch.full((4,), 3.0))
    torch.testing.assert_close(d.detach(), torch.full((4,), 6.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_gradients_of_the_same_graph_still_flow(backend: str | None) -> None:
    op = AddIntoFwdOp(False)

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (op(a.detach(), a.detach())[1] * b).sum()

    a, b = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    run(function, backend)(a, b).backward()
    torch.testing.assert_close(b.grad, torch.full((4,), 4.0))
    assert a.grad is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_writing_a_leaf_that_requires_grad_raises_before_anything_is_written(
    backend: str | None,
) -> None:
    op = AddIntoFwdOp(True)
    leaf = torch.zeros(4, requires_grad=True)
    text = (
        "AddIntoFwdOp: x is written and is a leaf that requires grad; call the op under "
        r"torch.no_grad\(\), or pass x.detach\(\)"
    )
    with pytest.raises(Exception, match=text):
        run(lambda x, y: op(x, y), backend)(leaf, torch.ones(4))
    assert leaf.tolist() == [0.0] * 4
    with torch.no_grad():
        op(leaf, torch.ones(4))
    assert leaf.tolist() == [1.0] * 4


def test_views_that_pytorch_cannot_follow_a_write_through_raise_first() -> None:
    op, ones = AddIntoFwdOp(True), torch.ones(2)
    leaf = torch.zeros(4, requires_grad=True)
    with pytest.raises(GradientError) as error:
        op(leaf[:2], ones)
    assert str(error.value) == (
        "AddIntoFwdOp: x is written and is a view of a leaf that requires grad; call the op under "
        "torch.no_grad(), or pass x.detach()"
    )
    first, _ = (leaf * 1).view(2, 2).unbind(0)
    with pytest.raises(GradientError) as error:
        op(first, ones)
    assert str(error.value) == (
        "AddIntoFwdOp: x is written and is a view that autograd cannot follow a write through (one "
        "of several that one call returned, or made in no_grad mode); pass a clone"
    )
    assert first.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("no_grad", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
def test_forward_mode_raises(inplace: bool, no_grad: bool) -> None:
    """Also under no_grad, which forward mode does not heed: the tangent would be zero."""
    op = AddIntoFwdOp(inplace)
    with forward_ad.dual_level(), torch.set_grad_enabled(not no_grad):
        dual = forward_ad.make_dual(torch.ones(4), torch.ones(4))
        with pytest.raises(GradientError) as error:
            op(dual, torch.ones(4))
        assert str(error.value) == TEXT
        z, _ = op(torch.ones(4), torch.ones(4))
    torch.testing.assert_close(z, torch.full((4,), 2.0))


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(torch.ones(4)),
    "vjp": lambda f: torch.func.vjp(f, torch.ones(4)),
    "jvp": lambda f: torch.func.jvp(f, (torch.ones(4),), (torch.ones(4),)),
    "jacrev": lambda f: torch.func.jacrev(f)(torch.ones(4)),
    "jacfwd": lambda f: torch.func.jacfwd(f)(torch.ones(4)),
    "hessian": lambda f: torch.func.hessian(lambda x: f(x).sum())(torch.ones(4)),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_function_transforms_raise(transform: str, compiled: bool) -> None:
    op = AddIntoFwdOp(False)

    def call() -> Any:
        return TRANSFORMS[transform](lambda x: op(x, torch.ones(4))[1])

    torch._dynamo.reset()
    function = torch.compile(call, backend="aot_eager") if compiled else call
    with pytest.raises(Exception, match="AddIntoFwdOp serves inference and has no derivative"):
        function()


def test_a_transform_over_something_else_leaves_the_op_alone() -> None:
    op, ones = AddIntoFwdOp(False), torch.ones(4)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * op(ones, ones)[1]).sum()

    fours = torch.full((4,), 4.0)
    torch.testing.assert_close(torch.func.grad(function)(ones), fours)
    torch.testing.assert_close(torch.func.jvp(function, (ones,), (ones,))[1], fours.sum())


def test_inference_tensors_and_checkpointing() -> None:
    op = AddIntoFwdOp(True)
    with torch.inference_mode():
        x = torch.zeros(4)
        z, d = op(x, torch.ones(4))
        assert z is x
        assert d.is_inference()

    def block(a: torch.Tensor) -> torch.Tensor:
        return AddIntoFwdOp(False)(a, torch.ones(4))[1]

    a = torch.ones(4, requires_grad=True)
    loss = torch.utils.checkpoint.checkpoint(block, a, use_reentrant=False).sum()
    with pytest.raises(GradientError):
        loss.backward()
