"""The same tensors laid out otherwise in memory, in room that shows what is written beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["LAYOUTS", "Room", "laid_out"]

LAYOUTS = ("stepped", "transposed")
"""Every second element of the last axis, and axes whose order in memory is another."""

_FIRST = 3
"""Where a tensor starts in its memory: kernels may not count on an aligned address."""


@dataclasses.dataclass(frozen=True)
class Room:
    """The memory of one tensor: what lies between its elements must stay as it is."""

    memory: torch.Tensor
    before: torch.Tensor

    def is_untouched(self, tensor: torch.Tensor) -> bool:
        """Whether only elements of ``tensor``, which lies in it, have changed."""
        expected = self.before.clone()
        view = expected.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        view.copy_(tensor)
        return torch.equal(expected.view(torch.uint8), self.memory.view(torch.uint8))


def laid_out(arguments: Mapping[str, Any], layout: str) -> tuple[dict[str, Any], dict[str, Room]]:
    """The arguments, each tensor in the layout, and the room that each of them lies in."""
    found, rooms = dict(arguments), {}
    for name, tensor in arguments.items():
        if isinstance(tensor, torch.Tensor):
            found[name], rooms[name] = _laid_out(tensor, layout)
    return found, rooms


def _laid_out(tensor: torch.Tensor, layout: str) -> tuple[torch.Tensor, Room]:
    shape, strides = tuple(tensor.shape), [0] * tensor.dim()
    axes = list(range(tensor.dim()))
    step = 2
    if layout == "transposed" and len(axes) > 1:
        # The last axis first in memory, so that no pair of axes is where a kernel expects it.
        axes, step = [axes[-1], *axes[:-1]], 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    memory = _filler(_FIRST + step, tensor)
    view = memory.as_strided(shape, strides, _FIRST)
    view.copy_(tensor)
    return view, Room(memory, memory.clone())


def _filler(size: int, like: torch.Tensor) -> torch.Tensor:
    """Memory that holds ordinary numbers; zeros where a number may be a place in another tensor."""
    memory = torch.zeros(size, dtype=like.dtype, device=like.device)
    if like.is_floating_point():
        memory.view(torch.uint8).fill_(0x37)
    return memory
