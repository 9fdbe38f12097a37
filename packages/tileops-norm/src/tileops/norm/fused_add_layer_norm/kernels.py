"""The kernels of the addition and layer normalization."""

from __future__ import annotations

from tileops.norm.rows.kernels import RowsInRegisters, RowsOnChip, RowsStreaming
from tileops.norm.rows.ops import FUSED_ADD_LAYER_NORM

__all__ = [
    "FusedAddLayerNormKernel",
    "FusedAddLayerNormOnChipKernel",
    "FusedAddLayerNormStreamingKernel",
]


class FusedAddLayerNormKernel(RowsInRegisters):
    row_op = FUSED_ADD_LAYER_NORM


class FusedAddLayerNormOnChipKernel(RowsOnChip):
    row_op = FUSED_ADD_LAYER_NORM


class FusedAddLayerNormStreamingKernel(RowsStreaming):
    row_op = FUSED_ADD_LAYER_NORM
