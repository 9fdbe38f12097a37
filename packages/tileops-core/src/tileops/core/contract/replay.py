"""New values in the memory that a CUDA graph was captured over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tileops.core.contract.check import NotApplicable
from tileops.core.contract.subject import Subject

__all__ = ["new_values", "refilled"]


def new_values(subject: Subject, draw: int) -> dict[str, Any]:
    """Arguments of the same shapes with other values.

    Raises:
        NotApplicable: the case gives other shapes, or call-time numbers, from draw to draw; a graph
            is of one.
    """
    first, values = subject.inputs(), subject.inputs(draw)
    for name, value in values.items():
        same = (
            value.shape == first[name].shape
            if isinstance(value, torch.Tensor)
            else value == first[name]
        )
        if not same:
            raise NotApplicable(f"the case draws another {name} each time, and a graph is of one")
    return values


def refilled(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Copies the values into the arguments' memory."""
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            arguments[name].copy_(value)
