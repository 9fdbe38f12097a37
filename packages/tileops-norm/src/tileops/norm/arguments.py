"""What every ``forward`` of the family does with its tensors before it asks for a kernel."""

from __future__ import annotations

import torch

__all__ = ["FLOAT32_EPS", "contiguous", "dtype_of", "into", "per_row"]

FLOAT32_EPS = torch.finfo(torch.float32).eps
"""What ``eps=None`` is: ``F.rms_norm`` takes the epsilon of the dtype that it computes in, which
is float32 for every dtype that the ops take."""


def contiguous(*tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """The tensors as kernels take them; one that is contiguous is itself."""
    return tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)


def dtype_of(tensor: torch.Tensor | None) -> torch.dtype | None:
    """The dtype of an optional tensor."""
    return None if tensor is None else tensor.dtype


def into(written: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """``written``, holding ``result``: in-tree kernels fill it, other targets may allocate."""
    return written if result is written else written.copy_(result)


def per_row(result: torch.Tensor, x: torch.Tensor, axes: int) -> torch.Tensor:
    """``result``, a number a row of ``x``, as ``[*B, 1]``: a target may not know how many ``axes``
    of ``x`` make up a row."""
    shape = (*x.shape[: x.dim() - axes], 1)
    return result if result.shape == shape else result.reshape(shape)
