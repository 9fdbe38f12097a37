"""Every check catches a fault of its kind by its name: a check that cannot fail is none."""

from __future__ import annotations

import pytest
import torch

from tileops.core.contract.check import BROKEN
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.suite import Suite, Work

from .planted import FAULTS, planted

IN_PROCESS = [check for check in CHECKS if not check.together]


def test_every_check_has_a_fault_that_it_catches() -> None:
    """Those on a card have theirs in ``test_planted_on_a_card``, fresh processes theirs in
    ``test_processes``."""
    on_a_card = {"cuda-graph", "reduce-overhead"}
    assert {fault.check for fault in FAULTS.values()} | on_a_card == {
        one.name for one in IN_PROCESS
    }


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    work = Work(fault.case, torch.device("cpu"))
    with (
        planted(fault, monkeypatch) as targets,
        Suite([work], targets=targets, seed=3, checks=IN_PROCESS) as suite,
    ):
        subject = suite.subjects()[0]
        found = {check.name: suite.observe(check, subject) for check in IN_PROCESS}
    assert found[fault.check].outcome == BROKEN
    assert fault.text in found[fault.check].detail
    broken = {name for name, finding in found.items() if finding.outcome == BROKEN}
    assert broken <= {fault.check, *fault.also}
