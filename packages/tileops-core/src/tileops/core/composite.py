"""Calls of ops that are made of other ops: checked, then traced down to the sub-ops' nodes.

A composite has no operator. Its generated ``__call__`` runs the checks of the entry and
``forward``, and a compiler traces both: each sub-op with a boundary becomes a node, and the plain
PyTorch between them is the compiler's to fuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tileops.core.op import Op
    from tileops.manifest import Entry

__all__ = ["call_composite", "is_composite", "sub_ops"]


def is_composite(entry: Entry) -> bool:
    """Whether ops of ``entry`` are made of others, and take tensors whose metadata is checked."""
    return bool(entry.composition and entry.signature.inputs)


def call_composite(op: Op, *inputs: torch.Tensor | None, **named: Any) -> Any:
    """``forward`` of a checked call, with autocast off.

    Sub-ops run with it off by themselves, and results have the entry's dtypes, not autocast's.
    """
    device = next(tensor.device.type for tensor in inputs if tensor is not None)
    if device != "meta" and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return op.forward(*inputs, **named)
    return op.forward(*inputs, **named)


def sub_ops(op: Op) -> list[Op]:
    """The ops that ``op`` holds as attributes, and those that these hold, each once."""
    from tileops.core.op import Op

    found: list[Op] = []
    waiting = [op]
    while waiting:
        for value in vars(waiting.pop()).values():
            for part in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(part, Op) and part is not op and part not in found:
                    found.append(part)
                    waiting.append(part)
    return found
