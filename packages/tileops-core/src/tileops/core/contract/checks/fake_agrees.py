"""The check ``fake-agrees``."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from tileops.core.contract.check import check
from tileops.core.contract.judge import require_alike
from tileops.core.contract.subject import Subject
from tileops.core.contract.traced import needs_traced
from tileops.core.errors import ContractError

__all__ = ["fake_agrees"]


@check("fake-agrees")
def fake_agrees(subject: Subject) -> str:
    """Real shapes, dtypes, strides and devices are those that the fake gives.

    The fake call may decide and build nothing, and of a call on meta tensors the same holds.
    """
    needs_traced(subject)
    op, mode = subject.make(), FakeTensorMode()
    fakes = {name: _faked(mode, value) for name, value in subject.inputs().items()}
    with mode:
        fake = subject.call(op, fakes)
    require_alike(subject.eager.results, fake.results, "the fake")
    if op._state.targets or op._state.kernels:
        raise ContractError("the fake call resolved a target, or kept a kernel")
    if subject.has_tensors:
        meta = {
            name: value.to("meta") if isinstance(value, torch.Tensor) else value
            for name, value in subject.inputs().items()
        }
        there = subject.call(subject.make(), meta).results
        ours = {name: _to_meta(value) for name, value in subject.eager.results.items()}
        require_alike(ours, there, "a call's on meta tensors")
    return ""


def _faked(mode: FakeTensorMode, value: Any) -> Any:
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=torch.device("meta")
    )
