"""The kernels of the row ops: which program serves a call, how it is built and launched.

An op declares them in its ``kernels.py``::

    class LayerNormKernel(RowsInRegisters):
        row_op = LAYER_NORM

and so for ``RowsOnChip`` and ``RowsStreaming``; its ``kernel_types`` name them ``layer_norm``,
``layer_norm_on_chip`` and ``layer_norm_streaming``, among which its interface, a
:class:`RowsInterface` with the same ``row_op``, chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

from tileops.core import Kernel, KernelInterface
from tileops.core.tilelang_backend import Program
from tileops.norm.rows.call import LayerNormCall
from tileops.norm.rows.ops import RowOp

__all__ = ["RowKernel", "RowsInRegisters", "RowsInterface", "RowsOnChip", "RowsStreaming"]


class RowsInterface(KernelInterface):
    """The role of a row op's kernels: takes and fills the ``row_op``'s tensors.

    x and what has its shape are contiguous rows of ``n``, weight and bias have ``n`` elements or
    are None, modulations are contiguous rows of ``n``, each for the same number of rows of x.
    """

    row_op: ClassVar[RowOp]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.inputs, cls.outputs = cls.row_op.inputs, cls.row_op.outputs

    @classmethod
    def select(cls, call: LayerNormCall, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        raise NotImplementedError


class RowKernel(Kernel):
    """One way to hold a row, for one op."""

    row_op: ClassVar[RowOp]

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Program]]:
        raise NotImplementedError


class RowsInRegisters(RowKernel):
    """The row in registers; short rows share a block."""


class RowsOnChip(RowKernel):
    """Wide rows, read once and held in registers and shared memory."""


class RowsStreaming(RowKernel):
    """Rows of any width: what does not fit the chip is read twice."""
