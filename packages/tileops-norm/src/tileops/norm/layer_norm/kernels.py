"""The kernels of layer normalization."""

from __future__ import annotations

from tileops.norm.rows.kernels import RowsInRegisters, RowsOnChip, RowsStreaming
from tileops.norm.rows.ops import LAYER_NORM

__all__ = ["LayerNormKernel", "LayerNormOnChipKernel", "LayerNormStreamingKernel"]


class LayerNormKernel(RowsInRegisters):
    row_op = LAYER_NORM


class LayerNormOnChipKernel(RowsOnChip):
    row_op = LAYER_NORM


class LayerNormStreamingKernel(RowsStreaming):
    row_op = LAYER_NORM
