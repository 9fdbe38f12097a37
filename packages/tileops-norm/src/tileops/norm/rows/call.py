"""What a row kernel is chosen and built by."""

from __future__ import annotations

import dataclasses

import torch

__all__ = ["LayerNormCall", "start_aligned"]


@dataclasses.dataclass(frozen=True)
class LayerNormCall:
    """What a norm's kernel is chosen by.

    The number of rows is not here: it is dynamic in every kernel. Neither is how many rows of x
    share a row of a modulation: that is read off the tensors at the launch.

    Attributes:
        device: the device of the call's tensors.
        n: the number of elements that are normalized together.
        eps: added to the variance or the mean square.
        dtype: that of x, and of all tensors of x's shape that are not quantized.
        weight_dtype: that of the weight; None is no weight.
        aligned: whether every tensor starts on 16 bytes.
        bias_dtype: that of the bias; None is no bias.
        weight_offset: added to the weight in float32.
        scale_ub: the bound of what a quantized row's scale covers; None is no bound.
    """

    device: torch.device
    n: int
    eps: float
    dtype: torch.dtype
    weight_dtype: torch.dtype | None = None
    aligned: bool = True
    bias_dtype: torch.dtype | None = None
    weight_offset: float = 0.0
    scale_ub: float | None = None


def start_aligned(*tensors: torch.Tensor | None) -> bool:
    """Whether all tensors that are there start on 16 bytes: ``LayerNormCall.aligned``."""
    return all(tensor is None or tensor.data_ptr() % 16 == 0 for tensor in tensors)
