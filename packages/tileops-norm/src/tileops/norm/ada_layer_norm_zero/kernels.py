"""The kernels of the gated addition and adaptive layer normalization."""

from __future__ import annotations

from tileops.norm.rows.kernels import RowsInRegisters, RowsOnChip, RowsStreaming
from tileops.norm.rows.ops import ADA_LAYER_NORM_ZERO

__all__ = [
    "AdaLayerNormZeroKernel",
    "AdaLayerNormZeroOnChipKernel",
    "AdaLayerNormZeroStreamingKernel",
]


class AdaLayerNormZeroKernel(RowsInRegisters):
    row_op = ADA_LAYER_NORM_ZERO


class AdaLayerNormZeroOnChipKernel(RowsOnChip):
    row_op = ADA_LAYER_NORM_ZERO


class AdaLayerNormZeroStreamingKernel(RowsStreaming):
    row_op = ADA_LAYER_NORM_ZERO
