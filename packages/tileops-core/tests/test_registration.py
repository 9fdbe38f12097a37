"""Registering operators: what is kept, what is refused, and that a refusal leaves nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from tileops.core.errors import DefinitionError
from tileops.core.registration import OperatorSpec, register


def spec(
    name: str, signature: str = "(Tensor x, str key) -> Tensor", **changes: Any
) -> OperatorSpec:
    options: dict[str, Any] = {
        "namespace": "tileops_test",
        "name": name,
        "signature": signature,
        "body": lambda x, key: x + 1,
        "fake": lambda x, key: torch.empty(x.shape, dtype=x.dtype, device=x.device),
        "autograd": None,
        "owner": "test.Op",
    }
    return OperatorSpec(**(options | changes))


def test_an_operator_runs_its_body_and_its_fake() -> None:
    (operator,) = register([spec("runs")])
    assert operator.name() == "tileops_test::runs"
    torch.testing.assert_close(operator(torch.zeros(2), "k"), torch.ones(2))
    fake = operator(torch.zeros(2, 3, device="meta"), "k")
    assert (fake.shape, fake.device.type) == ((2, 3), "meta")


def test_the_same_operator_again_is_the_one_that_is_there() -> None:
    (first,) = register([spec("again")])
    (second,) = register([spec("again", body=lambda x, key: x + 2, owner="test.Reloaded")])
    assert first is second
    torch.testing.assert_close(second(torch.zeros(1), "k"), torch.ones(1))


def test_another_schema_under_the_same_name_is_refused_naming_both_classes() -> None:
    register([spec("taken")])
    with pytest.raises(DefinitionError) as error:
        register([spec("fresh"), spec("taken", "(Tensor x) -> Tensor", owner="test.Other")])
    assert str(error.value) == (
        "test.Other: the operator tileops_test::taken is already registered by test.Op with the "
        "schema (Tensor x, str key) -> Tensor, and test.Other needs (Tensor x) -> Tensor; an "
        "operator's schema cannot change within a process: restart it, or give one of the two "
        "classes another name"
    )
    assert not hasattr(torch.ops.tileops_test, "fresh")


def test_a_name_that_pytorch_would_half_take_is_refused() -> None:
    with pytest.raises(DefinitionError) as error:
        register([spec("fine"), spec("x", namespace="my-ops")])
    assert str(error.value) == (
        "test.Op: 'my-ops::x' is not an operator name: 'my-ops' must be a Python identifier; "
        "rename the class, its family or its namespace"
    )
    assert not hasattr(torch.ops.tileops_test, "fine")


def test_many_threads_register_at_once() -> None:
    found: list[Any] = []

    def work() -> None:
        found.extend(register([spec(f"thread_{n}") for n in range(25)]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert len({operator.name() for operator in found}) == 25
