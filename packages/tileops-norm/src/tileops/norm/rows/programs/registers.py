"""Rows that are held in registers, as a TileLang program."""

from typing import Any

from tileops.norm.rows.configs import Build, RowConfig
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.device import SOURCE
from tileops.norm.rows.programs.parts import parts

__all__ = ["rows_in_registers"]


def rows_in_registers(op: RowOp, build: Build, config: RowConfig) -> Any:
    """A row in one block, or in one cluster of blocks; short rows share a block, or a warp."""
    import tilelang.language as T

    part = parts(op, build, config)
    move = part.move
    count = config.accesses(build.n)
    # Of a quantized row the products with the weight are kept instead of both, where a thread has
    # room for them in float32.
    kept = count if op.quantized and count * config.vector <= 32 else 0
    early = config.early or kept > 0

    @T.macro
    def measure(s, held, at):
        for k in move.counted(count):
            if not early:
                move.read_columns(s.columns, 1, at, k)
            part.quantized.measure(s, held, k, k if early else 0, k if kept else 0, at, k)

    @T.macro
    def write_quantized(s, held, at):
        for k in move.counted(count):
            if kept:
                move.write_rows(s.values, k, s.largest, at, k)
            else:
                if not early:
                    move.read_columns(s.columns, 1, at, k)
                part.quantized.write(s, held, k, k if early else 0, at, k)

    @T.macro
    def body(a):
        with T.Kernel(
            T.ceildiv(a.m, config.rows) * config.cluster,
            threads=config.block,
            cluster_dims=part.cluster_dims,
            prelude=part.prelude + SOURCE,
        ) as block:
            if part.waits:
                T.pdl_sync()  # see clusters.py
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            at = part.place(a, block, T.get_thread_binding())
            held = T.alloc_local((count, config.vector), build.dtype)
            s = part.state(count, kept, at)

            move.read_rows(held, s.other, count, at, 0)
            part.begin(s, at)
            move.read_columns(s.gates, count, at, 0)
            if early:
                move.read_columns(s.columns, count, at, 0)
            move.add_rows(held, s.other, s.gates, count, at, 0)
            part.begin_mean(s, held, count, at, 0)
            if part.layer and config.packed:
                move.keep_packed(held, count, build.dtype, s.mean)
            if op.quantized:
                measure(s, held, at)
            else:
                part.add(s, held, count, at, 0)
            if config.cluster > 1:
                T.call_extern("handle", "clusters::ready")
            part.end(s, at)
            if config.packed and not kept:
                move.keep_packed(held, count, build.dtype, s.factor)
                if early:
                    for column in s.columns:
                        move.keep_packed(column.buffer, count, column.line.kind, s.factor)
            if op.quantized:
                part.quantized.find_greatest(s)
                if part.quantized.is_beyond(s):
                    part.quantized.compute_exactly(s, held, at)
                else:
                    part.quantized.choose_factor(s, at)
                    write_quantized(s, held, at)
            else:
                if not early:
                    move.read_columns(s.columns, count, at, 0)
                part.write(s, held, count, at, 0, 0)

    return body
