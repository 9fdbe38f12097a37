"""The kernels of the addition and RMSNorm."""

from __future__ import annotations

from tileops.norm.rows.kernels import RowsInRegisters, RowsOnChip, RowsStreaming
from tileops.norm.rows.ops import FUSED_ADD_RMS_NORM

__all__ = ["FusedAddRMSNormKernel", "FusedAddRMSNormOnChipKernel", "FusedAddRMSNormStreamingKernel"]


class FusedAddRMSNormKernel(RowsInRegisters):
    row_op = FUSED_ADD_RMS_NORM


class FusedAddRMSNormOnChipKernel(RowsOnChip):
    row_op = FUSED_ADD_RMS_NORM


class FusedAddRMSNormStreamingKernel(RowsStreaming):
    row_op = FUSED_ADD_RMS_NORM
