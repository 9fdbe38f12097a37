"""Every op with a compile boundary compiles cold, in one graph that holds its operators only.

The cases are those that the installed families register; see ``tileops.core.contract``. Here each
of them goes through every check that ``tileops contract`` makes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tileops.core import contract
from tileops.core.contract.check import Check
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.suite import Suite, Work, require_held, work_of

contract.load_contracts()

OPS = [case.op for case in contract.cases()]
ON_CARDS = ("cuda-graph", "reduce-overhead")

each_case = pytest.mark.parametrize("case", contract.cases(), ids=lambda case: case.name)


@each_case
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_cold_compile(case: contract.CompileCase, backend: str, device: str) -> None:
    contract.check_cold_compile(case, device=torch.device(device), backend=backend)


@pytest.fixture(scope="module")
def suite(request: pytest.FixtureRequest) -> Iterator[Suite]:
    """What the tests below share: compiled cases, and the processes of all of them."""
    together = [check.name for check in CHECKS if check.together]
    with Suite(work_of(OPS, ["cpu"]), seed=torch.seed() % 2**31) as made:
        if any(name in item.name for item in request.session.items for name in together):
            made.start()
        yield made


@each_case
@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.name not in ON_CARDS], ids=lambda check: check.name
)
def test_contract(case: contract.CompileCase, check: Check, suite: Suite) -> None:
    found = suite.findings(Work(case, torch.device("cpu")), check)
    reasons = require_held([(subject.name, finding) for subject, finding in found])
    if reasons:
        pytest.skip(reasons)


@pytest.mark.gpu
@each_case
def test_contract_on_a_card(case: contract.CompileCase) -> None:
    work = Work(case, torch.device("cuda:0"))
    with Suite([work], seed=torch.seed() % 2**31) as suite:
        require_held(
            [
                (subject.name, finding)
                for check in CHECKS
                for subject, finding in suite.findings(work, check)
            ]
        )


def test_every_op_with_a_boundary_has_a_case() -> None:
    assert contract.ops_without_case() == []


def test_the_installed_families_have_ops() -> None:
    """The test above would pass over nothing at all."""
    assert "RMSNormFwdOp" in [op.__name__ for op in contract.ops_with_boundary()]
