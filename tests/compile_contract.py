"""Every op with a compile boundary compiles cold, in one graph that holds its operators only.

The cases are those that the installed families register; see ``tileops.core.contract``.
"""

from __future__ import annotations

import pytest
import torch

from tileops.core import contract

contract.load_contracts()

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("case", contract.cases(), ids=lambda case: case.name)
def test_cold_compile(case: contract.CompileCase, backend: str, device: str) -> None:
    contract.check_cold_compile(case, device=torch.device(device), backend=backend)


def test_every_op_with_a_boundary_has_a_case() -> None:
    assert contract.ops_without_case() == []


def test_the_installed_families_have_ops() -> None:
    """The test above would pass over nothing at all."""
    assert "RMSNormFwdOp" in [op.__name__ for op in contract.ops_with_boundary()]
