"""The kernels of RMSNorm with float8 results."""

from __future__ import annotations

from tileops.norm.rows.kernels import RowsInRegisters, RowsOnChip, RowsStreaming
from tileops.norm.rows.ops import RMS_NORM_PER_TOKEN_QUANT

__all__ = [
    "RMSNormPerTokenQuantKernel",
    "RMSNormPerTokenQuantOnChipKernel",
    "RMSNormPerTokenQuantStreamingKernel",
]


class RMSNormPerTokenQuantKernel(RowsInRegisters):
    row_op = RMS_NORM_PER_TOKEN_QUANT


class RMSNormPerTokenQuantOnChipKernel(RowsOnChip):
    row_op = RMS_NORM_PER_TOKEN_QUANT


class RMSNormPerTokenQuantStreamingKernel(RowsStreaming):
    row_op = RMS_NORM_PER_TOKEN_QUANT
