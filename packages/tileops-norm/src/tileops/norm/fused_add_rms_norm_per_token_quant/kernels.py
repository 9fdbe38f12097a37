"""The kernels of the addition and RMSNorm with float8 results."""

from __future__ import annotations

from tileops.norm.rows.kernels import RowsInRegisters, RowsOnChip, RowsStreaming
from tileops.norm.rows.ops import FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT

__all__ = [
    "FusedAddRMSNormPerTokenQuantKernel",
    "FusedAddRMSNormPerTokenQuantOnChipKernel",
    "FusedAddRMSNormPerTokenQuantStreamingKernel",
]


class FusedAddRMSNormPerTokenQuantKernel(RowsInRegisters):
    row_op = FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT


class FusedAddRMSNormPerTokenQuantOnChipKernel(RowsOnChip):
    row_op = FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT


class FusedAddRMSNormPerTokenQuantStreamingKernel(RowsStreaming):
    row_op = FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT
