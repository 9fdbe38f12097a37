"""The arguments of the call that a workload stands for."""

from __future__ import annotations

from typing import Any

import torch

from tileops.core.errors import BenchError
from tileops.manifest.calls import Call
from tileops.manifest.work import TensorFacts

__all__ = ["call_bytes", "check_values", "clone", "make_arguments"]

NUMBERS = (torch.int8, torch.uint8)
"""Integers that are stored numbers, not places in another tensor."""


def make_arguments(op: str, call: Call, device: torch.device, seed: int) -> dict[str, Any]:
    """What ``call`` passes, by name: random numbers by ``seed``, and the values generated for it.

    Floating inputs are normal, of the workload's scale. Optional inputs that the call leaves out
    are not there.

    Raises:
        BenchError: an input's values matter, and the workload generates none.
    """
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {
        name: _tensor(op, name, facts, device, generator)
        for name, facts in call.inputs.items()
        if facts is not None
    }
    return {**tensors, **call.ints}


def _tensor(
    op: str, name: str, facts: TensorFacts, device: torch.device, generator: torch.Generator
) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, facts.dtype)
    if facts.values is not None:
        return torch.tensor(list(facts.values), dtype=dtype, device=device).reshape(facts.shape)
    if dtype.is_floating_point:
        drawn = torch.randn(facts.shape, device=device, generator=generator)
        return drawn.mul_(facts.scale).to(dtype)
    if dtype is torch.bool:
        low, high = 0, 2
    elif dtype in NUMBERS:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1
    else:
        raise _needs_values(op, name, facts)
    drawn = torch.randint(low, high, facts.shape, device=device, generator=generator)
    return drawn.to(dtype)


def check_values(op: str, call: Call) -> None:
    """Checks that :func:`make_arguments` knows what every input holds.

    Raises:
        BenchError: an input's values matter, and the workload generates none.
    """
    for name, facts in call.inputs.items():
        if facts is None or facts.values is not None:
            continue
        dtype: torch.dtype = getattr(torch, facts.dtype)
        if not (dtype.is_floating_point or dtype in NUMBERS or dtype is torch.bool):
            raise _needs_values(op, name, facts)


def _needs_values(op: str, name: str, facts: TensorFacts) -> BenchError:
    return BenchError(
        f"{op}: the workload generates no values for {name}, which is {facts.dtype}, and "
        f"random ones could point anywhere; name a generator for it in the entry"
    )


def clone(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same arguments in memory of their own."""
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def call_bytes(call: Call) -> int:
    """The memory that the call's inputs and outputs take."""
    present = [facts for facts in call.inputs.values() if facts is not None]
    return sum(facts.nbytes for facts in [*present, *call.outputs.values()])
