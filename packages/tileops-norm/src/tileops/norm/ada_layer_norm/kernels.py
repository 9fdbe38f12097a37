"""The kernels of adaptive layer normalization."""

from __future__ import annotations

from tileops.norm.rows.kernels import RowsInRegisters, RowsOnChip, RowsStreaming
from tileops.norm.rows.ops import ADA_LAYER_NORM

__all__ = ["AdaLayerNormKernel", "AdaLayerNormOnChipKernel", "AdaLayerNormStreamingKernel"]


class AdaLayerNormKernel(RowsInRegisters):
    row_op = ADA_LAYER_NORM


class AdaLayerNormOnChipKernel(RowsOnChip):
    row_op = ADA_LAYER_NORM


class AdaLayerNormStreamingKernel(RowsStreaming):
    row_op = ADA_LAYER_NORM
