"""Where tensors start, which decides how wide a kernel's accesses are."""

from __future__ import annotations

import torch

__all__ = ["alignment_of"]


def alignment_of(*tensors: torch.Tensor | None) -> int:
    """The greatest power of two up to 16 of which each tensor's start, in bytes, is a multiple."""
    starts = 16
    for tensor in tensors:
        if tensor is not None:
            starts |= tensor.data_ptr()
    return starts & -starts
