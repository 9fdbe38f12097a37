"""Rows that share what is read of the weight and its like, as a TileLang program."""

import math
from types import SimpleNamespace
from typing import Any

from tileops.core.errors import KernelBuildError
from tileops.norm.rows.configs import ITEMSIZE, Build, RowConfig
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.device import SOURCE as ROWS
from tileops.norm.rows.programs.joint import SOURCE as JOINT
from tileops.norm.rows.programs.moves import Place
from tileops.norm.rows.programs.parts import parts

__all__ = ["rows_sharing_columns"]


def rows_sharing_columns(op: RowOp, build: Build, config: RowConfig) -> Any:
    """Groups of threads that hold ``config.rows_per_thread`` rows each.

    Rows past the last are zeros, not written. In a phased layout the rows of a group have one
    phase, so that what a thread reads of a weight is that of all its rows: they lie as far apart
    as phases come again.

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
    rows, layer = config.rows_per_thread, op.statistics == "layer"
    part = parts(op, build, config)
    move, stats = part.move, part.stats
    count = config.accesses(n)
    chunks = -(-n // vector)
    # How far apart a group's rows are.
    apart = vector // math.gcd(n, vector) if config.phased else 1
    template = f"{rows}, {lanes}, {groups}"
    flags = ", ".join("true" if flag else "false" for flag in (stats.corrected, move.even))
    threads = lanes * groups
    # Elsewhere the statistics wait for all of the block, and so for what all have staged.
    meet = config.staged and lanes <= 32 and threads > 32

    def places(a: Any, block: Any, thread: Any) -> list[Place]:
        group, lane = T.cast(block, "int64"), thread
        if groups > 1:
            group, lane = group * groups + thread // lanes, thread % lanes
        first = group * rows
        if apart > 1:
            first = group // apart * (apart * rows) + group % apart
        phase = T.cast(first * n % vector, "int32") if config.phased else 0
        return [
            Place(
                row=first + r * apart,
                m=a.m,
                base=first * n + r * apart * n,
                phase=phase,
                rank=0,
                lane=lane,
                thread=thread,
                a=a,
            )
            for r in range(rows)
        ]

    def blocks(m: Any) -> Any:
        if apart > 1:
            return T.ceildiv(T.ceildiv(m, apart * rows) * apart, groups)
        return T.ceildiv(m, groups * rows)

    @T.macro
    def stage(columns, stages, at):
        """The block's columns are on their way to shared memory."""
        for c in tuple(range(len(columns))):
            kind = columns[c].line.kind
            for i in tuple(range(-(-chunks // threads))):
                chunk = i * threads + at.thread
                if (i + 1) * threads <= chunks or chunk < chunks:
                    T.call_extern(
                        "handle",
                        f"rows::stage<{vector * ITEMSIZE[kind]}>",
                        T.address_of(stages[c][chunk * vector]),
                        columns[c].line.tensor + T.cast(chunk * vector * ITEMSIZE[kind], "int64"),
                    )

    @T.macro
    def unstage(columns, stages, at, k):
        """Access k of each column."""
        for c in tuple(range(len(columns))):
            T.call_extern(
                "handle",
                f"rows::copy<{vector * ITEMSIZE[columns[c].line.kind]}>",
                T.address_of(columns[c].buffer[0, 0]),
                T.address_of(stages[c][(k * lanes + at.lane) * vector]),
            )

    @T.macro
    def body(a):
        with T.Kernel(blocks(a.m), threads=threads, prelude=ROWS + JOINT) as block:
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            at = places(a, block, T.get_thread_binding())
            state = [part.row_state(place) for place in at]
            held = [T.alloc_local((count, vector), dtype) for _ in at]
            other = [T.alloc_local((count if op.added else 1, vector), dtype) for _ in at]
            columns = part.columns(count if config.early else 1, at[0])
            # What lies past a row's end in shared memory is read, and not used.
            stages = [
                T.alloc_shared((count * lanes * vector if config.staged else 1,), c.line.kind)
                for c in columns
            ]
            means = T.alloc_local((rows,), "float32")
            lows = T.alloc_local((rows,), "float32")
            distances = T.alloc_local((rows,), "float32")
            factors = T.alloc_local((rows,), "float32")
            cells = T.alloc_local((1,), "float32")

            if config.staged:
                stage(columns, stages, at[0])
            for r in tuple(range(rows)):
                move.read_rows(held[r], other[r], count, at[r], 0)
            if config.early and not config.staged:
                move.read_columns(columns, count, at[0], 0)
            for r in tuple(range(rows)):
                move.add_rows(held[r], other[r], [], count, at[r], 0)
            for r in tuple(range(rows)):
                state[r].factor[0] = 0.0
                state[r].distance[0] = 0.0
                state[r].mean[0] = 0.0
            if layer:
                cells[0] = stats.elements(at[0], 0, count)
                for r in tuple(range(rows)):
                    stats.add_up(held[r], count, state[r].mean)
                    means[r] = state[r].mean[0]
                T.call_extern(
                    "handle",
                    f"rows::means_of_warp<{rows}, {lanes}>",
                    T.address_of(means[0]),
                    cells[0],
                    at[0].thread,
                )
                for r in tuple(range(rows)):
                    state[r].mean[0] = means[r]
            for r in tuple(range(rows)):
                if layer and config.packed:
                    for k in tuple(range(count)):
                        move.keep_narrow(held[r], k, dtype, state[r].mean[0])
                part.add(state[r], held[r], count, at[r], 0)
                factors[r] = state[r].factor[0]
                if layer:
                    distances[r] = state[r].distance[0]
                    lows[r] = 0.0
            if config.staged:
                T.call_extern("handle", "rows::staged")
                if meet:
                    T.sync_threads()
            if layer:
                T.call_extern(
                    "handle",
                    f"rows::join_distances<{template}, {flags}>",
                    T.address_of(means[0]),
                    T.address_of(lows[0]),
                    T.address_of(distances[0]),
                    T.address_of(factors[0]),
                    cells[0],
                    T.float32(n),
                    a.eps,
                    at[0].thread,
                )
            else:
                T.call_extern(
                    "handle",
                    f"rows::join_squares<{template}>",
                    T.address_of(factors[0]),
                    T.float32(n),
                    a.eps,
                    at[0].thread,
                )
            for r in tuple(range(rows)):
                state[r].factor[0] = factors[r]
                if layer:
                    state[r].mean[0] = means[r]
                    state[r].low[0] = lows[r]
            if config.early and not config.staged and config.packed:
                for column in columns:
                    move.keep_packed(column.buffer, count, column.line.kind, state[0].factor)
            for k in tuple(range(count)):
                if config.staged:
                    unstage(columns, stages, at[0], k)
                elif not config.early:
                    move.read_columns(columns, 1, at[0], k)
                for r in tuple(range(rows)):
                    row = SimpleNamespace(**vars(state[r]), columns=columns)
                    if config.packed:
                        move.keep_narrow(held[r], k, dtype, state[r].factor[0])
                    part.normalize(row, held[r], k, k if config.early else 0, 0)
                    move.write_rows(row.values, 0, row.largest, row.at, k)

    return body
