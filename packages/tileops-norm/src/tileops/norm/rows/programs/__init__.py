"""The row ops over a contiguous matrix [M, n], as TileLang programs.

What an op computes stands at ``RowOp``. M is known at the launch, n when the program is built.
Sums, statistics and products are float32. NaN and infinities spread as they do in PyTorch's own
operators; a quantized row that has a NaN after the product with the weight has the scale NaN, and
NaN in all of its elements. Quantized values are products with the scale's reciprocal, which are off
the quotients by a few roundings of float32: see ``quantized``.

Launched with what ``parameters`` names: addresses and sizes as int64, numbers as float32. See
``tileops.core.tilelang_backend`` for that convention. An output may be written over an input of
its shape: each element is read by the thread that writes it, before it does.

Every offset is computed in 64 bits. A row is computed by one block, or by one cluster of blocks,
which may have several of them: no row depends on another, nor on M but for the layout that so many
rows have.
"""

from types import SimpleNamespace
from typing import Any

from tileops.core.errors import KernelBuildError
from tileops.norm.rows.configs import Build, Config, GroupConfig, RowConfig, together
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.grouped import grouped_rows
from tileops.norm.rows.programs.registers import rows_in_registers
from tileops.norm.rows.programs.sharing import rows_sharing_columns
from tileops.norm.rows.programs.wide import wide_rows

__all__ = ["PASS_CONFIGS", "parameters", "program"]

#: Every barrier is written out: TileLang 0.1.15 would add some between a thread's write to shared
#: memory and its own read of the same place.
PASS_CONFIGS = {"tl.disable_thread_storage_sync": True}

# In the order of a program's parameters.
_TENSORS = (
    *("x", "residual", "gate", "weight", "bias", "scale", "shift"),
    *("y", "row_scale", "residual_out"),
)
_NUMBERS = ("m", "eps", "offset", "bound", "gate_rows", "scale_rows", "shift_rows")


def parameters(op: RowOp, build: Build) -> tuple[str, ...]:
    """The names of what a program is launched with: the tensors, then the numbers.

    ``row_scale`` is the output ``scale`` of a quantized op. ``gate_rows`` is how many rows of x
    share one row of the gate.
    """
    present = {*op.inputs, *op.outputs, "m", "eps"}
    if op.quantized:
        present = present - {"scale"} | {"row_scale"}
        if build.bounded:
            present.add("bound")
    if build.weight is None:
        present.discard("weight")
    elif build.offset:
        present.add("offset")
    if build.bias is None:
        present.discard("bias")
    if op.modulated:
        present |= {f"{name}_rows" for name in ("gate", "scale", "shift") if name in present}
    return tuple(name for name in (*_TENSORS, *_NUMBERS) if name in present)


def _body(op: RowOp, build: Build, config: Config) -> Any:
    if isinstance(config, RowConfig) and config.sharing:
        return rows_sharing_columns(op, build, config)
    if isinstance(config, RowConfig):
        return rows_in_registers(op, build, config)
    if isinstance(config, GroupConfig):
        return grouped_rows(op, build, config)
    return wide_rows(op, build, config)


def program(op: RowOp, build: Build) -> Any:
    """The ``PrimFunc`` of one op in one layout, or in some among which it chooses by ``m``.

    Raises:
        KernelBuildError: no program can have kernels of all the layouts.
    """
    import tilelang.language as T

    if not together(*build.configs):
        raise KernelBuildError(
            f"{op.name}: one program cannot have kernels of {build.configs}: clusters must be of "
            f"one size; where only some have them, of one number of threads that no other has"
        )
    few = _body(op, build, build.config)
    several = few if build.several is None else _body(op, build, build.several)
    many = several if build.many is None else _body(op, build, build.many)
    alone = build.several is None and build.many is None
    others_rows = build.many_rows if build.several is None else build.several_rows

    @T.prim_func
    def entry(
        x: T.int64,
        residual: T.int64,
        gate: T.int64,
        weight: T.int64,
        bias: T.int64,
        scale: T.int64,
        shift: T.int64,
        y: T.int64,
        row_scale: T.int64,
        residual_out: T.int64,
        m: T.int64,
        eps: T.float32,
        offset: T.float32,
        bound: T.float32,
        gate_rows: T.int64,
        scale_rows: T.int64,
        shift_rows: T.int64,
    ):
        a = SimpleNamespace(
            x=x,
            residual=residual,
            gate=gate,
            weight=weight,
            bias=bias,
            scale=scale,
            shift=shift,
            y=y,
            row_scale=row_scale,
            residual_out=residual_out,
            m=m,
            eps=eps,
            offset=offset,
            bound=bound,
            gate_rows=gate_rows,
            scale_rows=scale_rows,
            shift_rows=shift_rows,
        )
        if alone or m < others_rows:
            few(a)
        elif build.several is not None and (build.many is None or m < build.many_rows):
            several(a)
        else:
            many(a)

    # What the op has not is no parameter: each costs a launch some time. By position, since a
    # macro that takes a parameter renames it.
    names = parameters(op, build)
    every = zip((*_TENSORS, *_NUMBERS), entry.params, strict=True)
    kept = [parameter for name, parameter in every if name in names]
    made = type(entry)(kept, entry.body, entry.ret_type, entry.buffer_map, entry.attrs)
    return made.with_attr("global_symbol", op.name)
