"""A target whose kernels fill what they are given, as those of a card do: cold calls and warm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tileops.core import Target, fills
from tileops.core.targets import register_target, unregister_target
from tileops.norm import (
    AdaLayerNormFwdOp,
    AdaLayerNormZeroFwdOp,
    FusedAddLayerNormFwdOp,
    FusedAddRMSNormFwdOp,
    FusedAddRMSNormPerTokenQuantFwdOp,
    LayerNormFwdOp,
    RMSNormFwdOp,
    RMSNormPerTokenQuantFwdOp,
)

ROW = {"normalized_shape": 16, "eps": 1e-5}
CASES: list[tuple[Any, dict[str, Any], list[tuple[int, ...]], set[int]]] = [
    (RMSNormFwdOp, ROW, [(3, 16), (16,)], set()),
    (LayerNormFwdOp, ROW, [(3, 16), (16,), (16,)], set()),
    (FusedAddRMSNormFwdOp, ROW, [(3, 16), (3, 16), (16,)], set()),
    (FusedAddRMSNormFwdOp, {**ROW, "inplace": True}, [(3, 16), (3, 16), (16,)], {0, 1}),
    (FusedAddLayerNormFwdOp, {**ROW, "inplace": True}, [(3, 16), (3, 16), (16,)], {0, 1}),
    (AdaLayerNormFwdOp, {}, [(2, 3, 16), (2, 16), (2, 16)], set()),
    (AdaLayerNormZeroFwdOp, {}, [(2, 3, 16)] * 2 + [(2, 16)] * 3, set()),
    (RMSNormPerTokenQuantFwdOp, ROW, [(3, 16), (16,)], set()),
    (
        FusedAddRMSNormPerTokenQuantFwdOp,
        {**ROW, "inplace": True},
        [(3, 16), (3, 16), (16,)],
        {1},
    ),
]


@pytest.fixture
def launches() -> Iterator[list[tuple[torch.Tensor, ...]]]:
    """The tensors of each launch of the target ``filling``, which computes by the references."""
    found: list[tuple[torch.Tensor, ...]] = []

    def kernel_for(op: Any, interface: str, call: Any) -> Any:
        role = op.interfaces[interface]

        @fills
        def kernel(*tensors: torch.Tensor) -> None:
            found.append(tensors)
            inputs, outputs = tensors[: len(role.inputs)], tensors[len(role.inputs) :]
            results = role.reference(call, *inputs)
            results = results if isinstance(results, tuple) else (results,)
            for output, result in zip(outputs, results, strict=True):
                output.copy_(result.reshape(output.shape))

        return kernel

    register_target(Target("filling", lambda device: False, kernel_for))
    yield found
    unregister_target("filling")


def as_tuple(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize(("cls", "params", "shapes", "written"), CASES)
def test_one_launch_fills_the_results(
    launches: Any, cls: Any, params: Any, shapes: Any, written: set[int]
) -> None:
    """A warm call launches at once, with new tensors, or the caller's where it is in place."""
    op, reference = cls(**params, target="filling"), cls(**params)
    outputs = len(op.entry.signature.outputs)
    for number in range(1, 4):
        given = [torch.randn(shape) for shape in shapes]
        copies = [one.clone() for one in given]
        found, expected = as_tuple(op(*given)), as_tuple(reference(*copies))
        for one, other in zip((*found, *given), (*expected, *copies), strict=True):
            assert torch.equal(one.float(), other.float())
        assert len(launches) == number
        filled = launches[-1][-outputs:]
        assert {n for n, one in enumerate(given) if any(one is it for it in filled)} == written
        assert all(one is it for one, it in zip(found, filled, strict=True))
