"""The kernels of RMSNorm."""

from __future__ import annotations

import torch

from tileops.norm.rms_norm.reference import rms_norm_reference
from tileops.norm.rows.call import LayerNormCall
from tileops.norm.rows.kernels import (
    RowsInRegisters,
    RowsInterface,
    RowsOnChip,
    RowsStreaming,
)
from tileops.norm.rows.ops import RMS_NORM

__all__ = ["RMSNormFwdInterface", "RMSNormKernel", "RMSNormOnChipKernel", "RMSNormStreamingKernel"]


class RMSNormFwdInterface(RowsInterface):
    """``(x, weight) -> y``: x and y are contiguous rows of ``n``, weight has ``n`` or is None."""

    row_op = RMS_NORM

    @classmethod
    def reference(cls, call: LayerNormCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        x, weight = inputs
        if x is None:
            raise ValueError("x is None")
        return rms_norm_reference(x, weight, call.n, call.eps, call.weight_offset)


class RMSNormKernel(RowsInRegisters):
    row_op = RMS_NORM


class RMSNormOnChipKernel(RowsOnChip):
    row_op = RMS_NORM


class RMSNormStreamingKernel(RowsStreaming):
    row_op = RMS_NORM
