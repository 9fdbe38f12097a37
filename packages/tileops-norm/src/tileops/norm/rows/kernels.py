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
from tileops.core.dtypes import dtype_name
from tileops.core.tilelang_backend import Program, build, device_arch, launcher
from tileops.norm.rows import choices, programs
from tileops.norm.rows.call import LayerNormCall
from tileops.norm.rows.configs import Build
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
        arch = device_arch(call.device)
        op = cls.row_op
        placing = choices.select(op, call.n, dtype_name(call.dtype), call.aligned, arch)
        return kernel_types[op.name if placing == "registers" else f"{op.name}_{placing}"]


class RowKernel(Kernel):
    """One way to hold a row, for one op."""

    row_op: ClassVar[RowOp]
    placing: ClassVar[choices.Placing]

    @classmethod
    def build_for(cls, call: LayerNormCall, arch: str) -> Build:
        """What the program for ``call`` depends on."""
        dtype = dtype_name(call.dtype)
        choice = choices.choose(cls.placing, cls.row_op, call.n, dtype, call.aligned, arch)
        return Build(
            call.n,
            dtype,
            *choice,
            weight=None if call.weight_dtype is None else dtype_name(call.weight_dtype),
            bias=None if call.bias_dtype is None else dtype_name(call.bias_dtype),
            offset=call.weight_dtype is not None and call.weight_offset != 0.0,
            bounded=call.scale_ub is not None,
        )

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Program]]:
        arch = device_arch(call.device)
        op, needed = cls.row_op, cls.build_for(call, arch)

        def build_program() -> Program:
            return build(
                lambda: programs.program(op, needed),
                arch=arch,
                pass_configs=programs.PASS_CONFIGS,
            )

        return (op, needed, arch), build_program

    def __call__(self, *tensors: Any) -> None:
        self.prepare(*tensors)(*tensors)

    def prepare(self, *tensors: Any) -> Callable[..., None]:
        call, op = self.call, self.row_op
        names = [*op.inputs, *(_OUTPUT_NAMES.get(name, name) for name in op.outputs)]
        places = {name: place for place, name in enumerate(names)}
        rows = tensors[places["x"]].numel() // call.n
        numbers = {
            "m": rows,
            "eps": call.eps,
            "offset": call.weight_offset,
            "bound": call.scale_ub,
        }
        if op.modulated:
            for name in ("gate", "scale", "shift"):
                if name in places:
                    numbers[f"{name}_rows"] = rows // (tensors[places[name]].numel() // call.n)
        build = self.build_for(call, device_arch(call.device))
        wanted = programs.parameters(op, build)
        words = [word if word in numbers else str(places[word]) for word in wanted]
        used = {word: numbers[word] for word in wanted if word in numbers}
        return launcher(self.program.launch, call.device.index, words, used)


#: A program's name for an output whose name an input of another op has.
_OUTPUT_NAMES = {"scale": "row_scale"}


class RowsInRegisters(RowKernel):
    """Rows of up to 32 KiB: in the registers of one block, or many read again; short rows share a
    block."""

    placing = "registers"


class RowsOnChip(RowKernel):
    """Wide rows, read once from memory: held in registers and shared memory, by one block or
    several, or read again while a cache has them."""

    placing = "on_chip"


class RowsStreaming(RowKernel):
    """Rows of any width: what does not fit the chip is read again."""

    placing = "streaming"
