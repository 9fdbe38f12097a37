"""The checks that need a card catch faults of their kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tileops.core.contract.check import BROKEN, HELD, NOT_APPLICABLE, observe
from tileops.core.contract.checks.cuda_graph import cuda_graph
from tileops.core.contract.checks.reduce_overhead import reduce_overhead
from tileops.core.contract.subject import Subject

from .declare import case, twice_op
from .good_ops import CASES

pytestmark = pytest.mark.gpu


def stale(self: Any, x: torch.Tensor) -> torch.Tensor:
    """What is captured reads the result of the warm-up."""
    if not torch.cuda.is_current_stream_capturing():
        self.kept = x.contiguous() * 2
    return self.kept.clone()


def refuses(self: Any, x: torch.Tensor) -> torch.Tensor:
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("nothing can be captured here")
    return x.contiguous() * 2


FAULTS = {
    "a stale result": (twice_op("PlantedStaleFwdOp", forward=stale), "replay 1: y has "),
    "no capture": (
        twice_op("PlantedCaptureFwdOp", forward=refuses),
        "RuntimeError: nothing can be captured here",
    ),
}


def looks(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.check_values(x.isfinite().all(), lambda: "x must be finite")
    return x.contiguous() * 2


def subject_of(one: Any) -> Subject:
    return Subject(one, torch.device("cuda:0"), target="reference", seed=1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_capture_that_fails_or_lies_is_caught(name: str) -> None:
    cls, text = FAULTS[name]
    finding = observe(cuda_graph, subject_of(case(cls)))
    assert finding.outcome == BROKEN
    assert finding.detail.startswith(text)


def test_an_op_that_looks_at_values_refuses_a_capture_and_says_so() -> None:
    finding = observe(cuda_graph, subject_of(case(twice_op("PlantedLooksFwdOp", forward=looks))))
    assert finding.outcome == NOT_APPLICABLE
    assert finding.detail == (
        "PlantedLooksFwdOp: the op checks its tensors' values at each call, and none can be read "
        "while a CUDA graph is captured; build an op without the check"
    )


def test_an_inductor_that_does_not_replay_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it leaves CUDA graphs out, which it says in a log alone."""
    plain = torch.compile

    def without(function: Any, *, mode: str, **options: Any) -> Any:
        return plain(function, **options)

    good = CASES["one node"]
    assert observe(reduce_overhead, subject_of(good)).outcome == HELD
    monkeypatch.setattr(torch, "compile", without)
    finding = observe(reduce_overhead, subject_of(good))
    assert finding.outcome == BROKEN
    assert finding.detail == (
        "the last 2 of 5 calls must replay a CUDA graph; the calls replayed 0, 0, 0, 0, 0; "
        "TORCH_LOGS=cudagraphs says why"
    )
