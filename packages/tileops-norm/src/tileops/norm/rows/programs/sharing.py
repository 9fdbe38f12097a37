"""Rows that share what is read of the weight and its like, as a TileLang program."""

from types import SimpleNamespace
from typing import Any

from tileops.core.errors import KernelBuildError
from tileops.norm.rows.configs import Build, RowConfig
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.device import SOURCE as ROWS
from tileops.norm.rows.programs.joint import SOURCE as JOINT
from tileops.norm.rows.programs.moves import Place
from tileops.norm.rows.programs.parts import parts

__all__ = ["rows_sharing_columns"]


def rows_sharing_columns(op: RowOp, build: Build, config: RowConfig) -> Any:
    """Groups of threads that hold ``config.rows_per_thread`` rows each, in registers.

    Rows past the last are zeros, not written.

    Raises:
        KernelBuildError: for an op, or a layout, that this program is not of.
    """
    import tilelang.language as T

    if op.quantized or op.modulated:
        raise KernelBuildError(f"{op.name}: no program has rows of it that share a weight")
    if config.unshared():
        raise KernelBuildError(f"{op.name}: {config}: {config.unshared()}")
    dtype, n = build.dtype, build.n
    lanes, vector, groups = config.lanes, config.vector, config.rows_per_block
    layer = op.statistics == "layer"
    part = parts(op, build, config)
    move, stats = part.move, part.stats
    count = config.accesses(n)
    rows = tuple(range(config.rows_per_thread))
    template = f"{len(rows)}, {lanes}, {groups}"
    flags = ", ".join("true" if flag else "false" for flag in (stats.corrected, move.even))

    def places(a: Any, block: Any, thread: Any) -> list[Place]:
        """Where ``thread`` of ``block`` is in each of its rows."""
        group, lane = T.cast(block, "int64"), thread
        if groups > 1:
            group, lane = group * groups + thread // lanes, thread % lanes
        first = group * len(rows)
        return [
            Place(
                row=first + r,
                m=a.m,
                base=first * n + r * n,
                phase=0,
                rank=0,
                lane=lane,
                thread=thread,
                a=a,
            )
            for r in rows
        ]

    @T.macro
    def find_means(state, held, means, cells, thread):
        """mean = that of what the thread's warp has of each row."""
        for r in rows:
            state[r].mean[0] = 0.0
            stats.add_up(held[r], count, state[r].mean)
            means[r] = state[r].mean[0]
        T.call_extern(
            "handle",
            f"rows::means_of_warp<{len(rows)}, {lanes}>",
            T.address_of(means[0]),
            cells,
            thread,
        )
        for r in rows:
            state[r].mean[0] = means[r]

    @T.macro
    def join(state, means, cells, at):
        """Each row's mean, mean + low, and factor, which all its threads agree on."""
        lows = T.alloc_local((len(rows),), "float32")
        distances = T.alloc_local((len(rows),), "float32")
        factors = T.alloc_local((len(rows),), "float32")
        for r in rows:
            factors[r] = state[r].factor[0]
            if layer:
                distances[r] = state[r].distance[0]
                lows[r] = 0.0
        if layer:
            T.call_extern(
                "handle",
                f"rows::join_distances<{template}, {flags}>",
                T.address_of(means[0]),
                T.address_of(lows[0]),
                T.address_of(distances[0]),
                T.address_of(factors[0]),
                cells,
                T.float32(n),
                at.a.eps,
                at.thread,
            )
        else:
            T.call_extern(
                "handle",
                f"rows::join_squares<{template}>",
                T.address_of(factors[0]),
                T.float32(n),
                at.a.eps,
                at.thread,
            )
        for r in rows:
            state[r].factor[0] = factors[r]
            if layer:
                state[r].mean[0] = means[r]
                state[r].low[0] = lows[r]

    @T.macro
    def write(row, held, columns, k, column_at):
        if config.packed:
            move.keep_narrow(held, k, dtype, row.factor[0])
        part.normalize(SimpleNamespace(**vars(row), columns=columns), held, k, column_at, 0)
        move.write_rows(row.values, 0, row.largest, row.at, k)

    @T.macro
    def body(a):
        with T.Kernel(
            T.ceildiv(a.m, config.rows), threads=config.block, prelude=ROWS + JOINT
        ) as block:
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            at = places(a, block, T.get_thread_binding())
            state = [part.row_state(place) for place in at]
            held = [T.alloc_local((count, vector), dtype) for _ in rows]
            other = [T.alloc_local((count if op.added else 1, vector), dtype) for _ in rows]
            columns = part.columns(count if config.early else 1, at[0])
            means = T.alloc_local((len(rows),), "float32")
            cells = T.alloc_local((1,), "float32")

            for r in rows:
                move.read_rows(held[r], other[r], count, at[r], 0)
            if config.early:
                move.read_columns(columns, count, at[0], 0)
            for r in rows:
                move.add_rows(held[r], other[r], [], count, at[r], 0)
                state[r].factor[0] = 0.0
                state[r].distance[0] = 0.0
            if layer:
                cells[0] = stats.elements(at[0], 0, count)
                find_means(state, held, means, cells[0], at[0].thread)
            for r in rows:
                if layer and config.packed:
                    for k in tuple(range(count)):
                        move.keep_narrow(held[r], k, dtype, state[r].mean[0])
                part.add(state[r], held[r], count, at[r], 0)
            join(state, means, cells[0], at[0])
            if config.early and config.packed:
                for column in columns:
                    move.keep_packed(column.buffer, count, column.line.kind, state[0].factor)
            for k in tuple(range(count)):
                # One access at a time: those of all of them spilled.
                if not config.early:
                    move.read_columns(columns, 1, at[0], k)
                for r in rows:
                    write(state[r], held[r], columns, k, k if config.early else 0)

    return body
