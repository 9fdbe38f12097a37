"""Ops that keep to their contracts hold every check, and what does not apply is said with why."""

from __future__ import annotations

import pytest
import torch

from tileops.core.contract.check import HELD, NOT_APPLICABLE
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.suite import Suite, Work

from .good_ops import CASES

IN_PROCESS = [check for check in CHECKS if not check.together]
CARD = "needs a CUDA device, and the call is on cpu"
ONE_TARGET = "the target 'reference' alone was asked for, or alone serves"
NO_TENSOR = "the op has no call-time tensor"
NO_BOUNDARY = "the op has no compile boundary"
NOT_THERE = {
    "composite": {"keys": NO_BOUNDARY, "opcheck": NO_BOUNDARY},
    "composite with nodes": {"keys": NO_BOUNDARY, "opcheck": NO_BOUNDARY},
    "no call-time tensor": {
        **dict.fromkeys(("keys", "opcheck"), NO_BOUNDARY),
        **dict.fromkeys(("same-graph", "writes", "strided", "zero-rows"), NO_TENSOR),
        **dict.fromkeys(("dynamic-marked", "dynamic-automatic"), NO_TENSOR),
    },
}


@pytest.mark.parametrize("name", CASES)
def test_every_check_holds_or_says_why_it_says_nothing(name: str) -> None:
    with Suite([Work(CASES[name], torch.device("cpu"))], seed=1, checks=IN_PROCESS) as suite:
        subject = suite.subjects()[0]
        found = {check.name: suite.observe(check, subject) for check in IN_PROCESS}
    wanted = {"cuda-graph": CARD, "reduce-overhead": CARD, **NOT_THERE.get(name, {})}
    assert {n: f.detail for n, f in found.items() if f.outcome == NOT_APPLICABLE} == wanted
    assert {n: f.detail for n, f in found.items() if n not in wanted and f.outcome != HELD} == {}


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_every_check_holds_on_a_card(name: str) -> None:
    work = Work(CASES[name], torch.device("cuda:0"))
    with Suite([work], targets=["reference"], seed=1, checks=IN_PROCESS) as suite:
        subject = suite.subjects()[0]
        found = {check.name: suite.observe(check, subject) for check in IN_PROCESS}
    wanted = {"same-graph": ONE_TARGET, **NOT_THERE.get(name, {})}
    assert {n: f.detail for n, f in found.items() if f.outcome == NOT_APPLICABLE} == wanted
    assert {n: f.detail for n, f in found.items() if n not in wanted and f.outcome != HELD} == {}
