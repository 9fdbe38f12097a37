"""Rows that are quantized, as TileLang macros.

With ``w = weight + weight_offset`` and ``r = 1 / sqrt(mean(v**2) + eps)`` the greatest magnitude of
``v * r * w`` is ``r`` times that of ``v * w``, which is found beside the squares: one pass, and one
exchange between the row's warps. The result is then ``v * w`` times ``r / scale``.

``v * w`` may leave float32's range where ``v * r * w`` does not. Where it is too small nothing is
lost: ``r`` is at most 2**75 where it is finite, so what the rounding of a subnormal product moves,
2**-150, is far below the least greatest magnitude that a scale covers, 1 / 512, and below half of
float8's least step of the least scale, 2**-28. Where it is too large, or ``r`` or anything in the
row is not finite, ``r`` times the greatest is infinite or NaN: such a row is read again from
memory, and computed in the order that the op's definition has.
"""

from types import SimpleNamespace
from typing import Any

from tileops.norm.rows.configs import Build, Config
from tileops.norm.rows.ops import RowOp

__all__ = ["quantized"]


def quantized(
    op: RowOp, build: Build, config: Config, move: Any, stats: Any, normalize: Any
) -> Any:
    """Macros for a quantized op; None for another.

    ``normalize`` is ``parts``'s: ``s`` and ``at`` are as there.
    """
    import tilelang.language as T

    if not op.quantized:
        return None
    lanes, vector = config.lanes, config.vector

    @T.macro
    def weigh(s, column_at, slot):
        """values[slot] *= the weight."""
        for column in s.columns:
            operand = T.alloc_local((1, vector), "float32")
            move.widen(operand, 0, column.buffer, column_at, column.line.kind)
            for v in T.unroll(vector):
                s.values[slot, v] = s.values[slot, v] * (
                    operand[0, v] + s.a.offset if build.offset else operand[0, v]
                )

    @T.macro
    def find_largest(s, slot, at, i):
        """largest = that of it and of the magnitudes of values[slot], of access i."""
        part = T.alloc_local((1,), "float32")
        part[0] = 0.0
        for v in T.unroll(vector):
            if config.phased and not move.whole(i):
                # Outside the row the weight is any number, and no zero stays one.
                if move.has(at, i, v):
                    stats.larger(part, T.abs(s.values[slot, v]))
            else:
                stats.larger(part, T.abs(s.values[slot, v]))
        stats.larger(s.largest, part[0])

    @T.macro
    def measure(s, held, k, column_at, slot, at, i):
        """Add up the squares of held[k], access i; values[slot] = products, largest = theirs."""
        part = T.alloc_local((1,), "float32")
        part[0] = 0.0
        move.widen(s.values, slot, held, k, build.dtype)
        for v in T.unroll(vector):
            part[0] += s.values[slot, v] * s.values[slot, v]
        s.factor[0] += part[0]
        weigh(s, column_at, slot)
        find_largest(s, slot, at, i)

    @T.macro
    def choose_scale(s, at):
        """Write the row's scale; largest = its reciprocal."""
        # Comparisons that a NaN fails, so that it stays.
        if build.bounded:
            s.largest[0] = T.if_then_else(s.largest[0] > at.a.bound, at.a.bound, s.largest[0])
        s.largest[0] = T.if_then_else(s.largest[0] < 1.0 / 512, 1.0 / 512, s.largest[0])
        if at.lane == 0 and at.rank == 0 and at.row < at.m:
            scale = T.alloc_local((1,), "float32")
            scale[0] = s.largest[0] / 448.0
            T.call_extern(
                "handle", "rows::put<4, 0>", at.a.row_scale + at.row * 4, T.address_of(scale[0])
            )
        s.largest[0] = 448.0 / s.largest[0]

    @T.macro
    def write(s, held, k, column_at, at, i):
        """Access i of the result, of held[k]."""
        move.widen(s.values, 0, held, k, build.dtype)
        weigh(s, column_at, 0)
        move.write_rows(s.values, 0, s.largest, at, i)

    @T.macro
    def compute_exactly(s, held, at):
        """The whole row once more, each product in its order; held[0] is overwritten."""
        s.largest[0] = 0.0
        for i in T.serial(config.accesses(build.n)):
            move.read_again(held, 1, at, i)
            move.read_columns(s.columns, 1, at, i)
            normalize(s, held, 0, 0, 0)
            find_largest(s, 0, at, i)
        s.largest[0] = T.call_extern(
            "float32",
            f"rows::largest_of_row<{lanes}, {config.rows}, {config.cluster}>",
            s.largest[0],
            at.thread,
            at.rank,
        )
        choose_scale(s, at)
        for i in T.serial(config.accesses(build.n)):
            move.read_again(held, 1, at, i)
            move.read_columns(s.columns, 1, at, i)
            normalize(s, held, 0, 0, 0)
            move.write_rows(s.values, 0, s.largest, at, i)

    @T.macro
    def find_greatest(s):
        """largest = the row's greatest magnitude, once ``factor`` and ``largest`` are the row's."""
        s.largest[0] = s.largest[0] * s.factor[0]

    def is_beyond(s: Any) -> Any:
        """Whether that is not finite, so that the row must be computed exactly."""
        return T.call_extern("bool", f"rows::is_beyond<{lanes}>", s.largest[0])

    @T.macro
    def choose_factor(s, at):
        """Write the row's scale; largest = what its products are multiplied by."""
        choose_scale(s, at)
        s.largest[0] = s.largest[0] * s.factor[0]

    return SimpleNamespace(
        measure=measure,
        find_greatest=find_greatest,
        is_beyond=is_beyond,
        compute_exactly=compute_exactly,
        choose_factor=choose_factor,
        write=write,
    )
