"""Copies and pickles of ops, alone and inside a module, in one process."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from key_samples import NotedScaleOp, ScaleFwdOp

X = torch.randn(3, 4)


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def through_torch(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


class Layer(torch.nn.Module):
    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op
        self.again = op
        self.weight = torch.nn.Parameter(torch.ones(4))


def inside(way: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def copied(op: Any) -> Any:
        layer = way(Layer(op))
        # Two places that held one op hold one op.
        assert layer.again is layer.op
        return layer.op

    return copied


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": through_pickle,
    "torch.save": through_torch,
    "copy in a list": lambda op: copy.deepcopy([op, op])[1],
    "deepcopy in a module": inside(copy.deepcopy),
    "pickle in a module": inside(through_pickle),
    "torch.save in a module": inside(through_torch),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return WAYS[request.param]


def test_the_copy_of_a_shared_op_is_the_shared_op(way: Callable[[Any], Any]) -> None:
    """Copies of a layer still compile to one graph."""
    op = ScaleFwdOp.shared(4, target="reference")
    assert way(op) is op


def test_the_copy_of_any_other_is_a_new_instance(way: Callable[[Any], Any]) -> None:
    """With the params and the target, and nothing that was resolved, built or planned."""
    op = ScaleFwdOp(4, target="reference")
    op(X)
    op(X)
    assert op._plans
    made = way(op)
    assert made is not op
    assert (made._description, made._explicit_target) == (op._description, "reference")
    assert made._key != op._key
    assert (repr(made), vars(made).keys()) == (repr(op), vars(op).keys())
    assert (made._plans, made._state.kernels, made._state.targets) == ({}, {}, {})
    assert made.serving_target is None
    torch.testing.assert_close(made(X), op(X))
    assert made.serving_target == "reference"


def test_what_a_subclass_keeps_is_copied_with_it(way: Callable[[Any], Any]) -> None:
    op = NotedScaleOp(4, note="seen")
    op.notes.append("later")
    made = way(op)
    assert made._key != op._key
    assert made.notes == ["seen", "later"]
    assert (made.notes is op.notes) == (way is copy.copy)


def test_an_attribute_may_lead_back_to_the_op() -> None:
    """A deep copy used to recurse until the stack ran out."""
    op = NotedScaleOp(4)
    op.notes.append(op)
    made = copy.deepcopy(op)
    assert made.notes[-1] is made
    again = through_pickle(op)
    assert again.notes[-1] is again


def test_a_pickle_does_not_change_the_shared_op_that_lives_here() -> None:
    op = NotedScaleOp.shared(4)
    old = pickle.dumps(op)
    op.notes = ["newer"]
    assert pickle.loads(old) is op
    assert op.notes == ["newer"]
