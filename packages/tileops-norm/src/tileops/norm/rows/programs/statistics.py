"""A row's statistics, from what its threads hold, as TileLang macros.

Every thread of a row gets the same bits: what its warps found is added up in one order.

For layer normalization no sum of squares is subtracted from another, but where tensor cores find
them (``products``) and the difference loses little: see products.py. Elsewhere each warp takes the
mean of its elements, or where it reads them but once of the first of them, then the sum of the
distances from it and of their squares, and the warps' findings are joined by the formula of Chan,
Golub and LeVeque. The sum of the distances corrects the mean, which is so known to twice float32's
digits: a mean that is large beside the variance costs no digits of y. Nor does a first part whose
mean is far from the rest's: that distance is a part of the variance itself. Where a warp's first
part is one ``k``-th of what it has, its sum of squares is at most ``k`` times what is left of it.

Half-precision rows in registers, whose warps take the mean of all that they hold, do without the
correction: what the rounding of a float32 mean may change is far below a step of theirs.

Wider ones, of which a warp reads all at once, have it without a look at each element: what a warp's
mean lost to rounding is known from its threads' sums, which the warp adds up to twice float32's
digits. Such a sum is of up to 64 numbers, of 11 digits at most. It is exact, unless one of them is
below a 64th of another: then those two alone are as much of the variance as their distance, and the
roundings of all such sums move the mean by at most 200 * 2**-24 of the row's deviation.
"""

from types import SimpleNamespace
from typing import Any

from tileops.norm.rows.configs import Config, RowConfig, WideConfig
from tileops.norm.rows.ops import RowOp

__all__ = ["statistics"]


def statistics(op: RowOp, n: int, dtype: str, config: Config, moves: Any) -> Any:
    """Macros for rows of ``n``; ``at`` is a Place."""
    import tilelang.language as T

    lanes, vector = config.lanes, config.vector
    warps = max(lanes // 32, 1)
    parts = warps * config.cluster
    # Lanes that add up what the warps found, each that of one warp or of every 32nd.
    width = min(1 << (parts - 1).bit_length(), 32)
    corrected = dtype == "float32" or not isinstance(config, RowConfig)
    # Whether the correction is known from the threads' sums.
    summed = (
        isinstance(config, WideConfig)
        and not config.products
        and dtype != "float32"
        and config.in_registers == 0
        and config.unroll == config.accesses(n)
        and config.unroll * vector <= 64
    )
    kinds = 1 + op.quantized if op.statistics == "rms" else 2 + corrected + (not moves.even)
    if config.products:
        kinds = 1 if op.statistics == "rms" else 2
    full = config.accesses(n) * min(lanes, 32) * vector

    @T.macro
    def over_lanes(value, count):
        """value[0] = its sum over ``count`` lanes."""
        for k in T.unroll(count.bit_length() - 1):
            value[0] += T.shfl_xor(value[0], 1 << k)

    @T.macro
    def expect(box, barrier, at):
        """The block expects what ``share`` will send it."""
        if at.thread == 0:
            T.call_extern(
                "handle",
                "clusters::expect",
                T.address_of(barrier[0]),
                kinds * parts * 4,
                T.address_of(box[0, 0, 0]),
            )

    @T.macro
    def share(box, barrier, values, at):
        """box[kind, row, part] = values[kind] of every warp of the row, in all of its blocks."""
        if config.cluster > 1:
            part = at.rank * warps + at.thread // 32
            if at.thread % 32 < config.cluster:
                for kind in tuple(range(len(values))):
                    T.call_extern(
                        "handle",
                        "clusters::send",
                        T.address_of(box[kind, 0, part]),
                        T.address_of(barrier[0]),
                        at.thread % 32,
                        values[kind][0],
                    )
            T.call_extern("handle", "clusters::await", T.address_of(barrier[0]))
        else:
            if at.thread % 32 == 0:
                for kind in tuple(range(len(values))):
                    box[kind, at.thread // lanes, at.lane // 32] = values[kind][0]
            T.sync_threads()

    def of_lane(at: Any, turn: int) -> Any:
        """The part that a lane adds up in its turn; it may be past the last."""
        return turn * 32 + at.thread % width

    def there(at: Any, turn: int) -> Any:
        """Whether there is such a part."""
        return turn * 32 + width <= parts or of_lane(at, turn) < parts

    turns = tuple(range(-(-parts // 32)))

    @T.macro
    def collect(box, values, at):
        """values[kind] = the sum over what the row's warps, of which there are several, shared."""
        for kind in tuple(range(len(values))):
            values[kind][0] = 0.0
            for turn in turns:
                if there(at, turn):
                    values[kind][0] += box[kind, 0, of_lane(at, turn)]
            over_lanes(values[kind], width)

    # Root mean square: total is a thread's sum of squares, at last 1 / sqrt(mean + eps).

    @T.macro
    def add_squares(held, count, total):
        """total += sum of held**2, one partial sum an access to shorten the chain of additions."""
        part = T.alloc_local((1,), "float32")
        wide = T.alloc_local((1, vector), "float32")
        for k in T.unroll(count):
            part[0] = 0.0
            if moves.widened:
                moves.widen(wide, 0, held, k, dtype)
            for v in T.unroll(vector):
                part[0] += moves.number(held, wide, k, v) * moves.number(held, wide, k, v)
            total[0] += part[0]

    @T.macro
    def larger(value, other):
        """value[0] = the larger of both; NaN where one is."""
        value[0] = T.call_extern("float32", "rows::larger", value[0], other)

    @T.macro
    def reciprocal_rms(total, largest, box, barrier, at, eps):
        """Where quantized, largest[0] = the largest over the row's threads too."""
        row = at.thread // lanes
        over_lanes(total, min(lanes, 32))
        if op.quantized:
            largest[0] = T.call_extern(
                "float32", f"rows::largest_of_lanes<{min(lanes, 32)}>", largest[0]
            )
        if parts > 1:
            share(box, barrier, (total, largest) if op.quantized else (total,), at)
            total[0] = 0.0
            if parts <= 8:
                for k in T.unroll(parts):
                    total[0] += box[0, row, k]
                    if op.quantized:
                        larger(largest, box[1, row, k])
            else:
                for turn in turns:
                    if there(at, turn):
                        total[0] += box[0, row, of_lane(at, turn)]
                        if op.quantized:
                            larger(largest, box[1, row, of_lane(at, turn)])
                over_lanes(total, width)
                if op.quantized:
                    largest[0] = T.call_extern("float32", "rows::largest_of_lanes<32>", largest[0])
        total[0] = T.rsqrt(total[0] / n + eps)

    # Layer normalization: what every element is shifted by, and then multiplied by.

    @T.macro
    def add_up(held, count, total):
        """total += sum of held."""
        part = T.alloc_local((1,), "float32")
        wide = T.alloc_local((1, vector), "float32")
        for k in T.unroll(count):
            part[0] = 0.0
            if moves.widened:
                moves.widen(wide, 0, held, k, dtype)
            for v in T.unroll(vector):
                part[0] += moves.number(held, wide, k, v)
            total[0] += part[0]

    def elements(at: Any, first: int, count: int) -> Any:
        """How many elements of the row the thread's warp has in some accesses, as float32."""
        if moves.whole(first + count - 1) and not config.phased:
            return T.float32(count * min(lanes, 32) * vector)
        found = T.int32(0)
        warp = at.lane // 32 * 32 if lanes > 32 else 0
        for i in range(first, first + count):
            begin = at.rank * moves.slice_size + (i * lanes + warp) * vector - at.phase
            end = T.min(begin + min(lanes, 32) * vector, n)
            found = found + T.max(end - T.max(begin, 0), 0)
        return T.cast(found, "float32")

    @T.macro
    def warp_mean(total, cells, distance):
        """total = the mean of what the warp added up, ``cells`` elements; where it is all that the
        warp has, distance may be the sum of their distances from it."""
        if summed:
            T.call_extern(
                "handle",
                "rows::mean_of_warp",
                T.address_of(total[0]),
                T.address_of(distance[0]),
                cells[0],
            )
        else:
            over_lanes(total, min(lanes, 32))
            total[0] = total[0] / T.max(cells[0], 1.0)

    @T.macro
    def add_distances(held, count, mean, distance, square, at, i):
        """distance += sum of held - mean, square += sum of its square."""
        part = T.alloc_local((2,), "float32")
        gap = T.alloc_local((1,), "float32")
        wide = T.alloc_local((1, vector), "float32")
        for k in moves.counted(count):
            part[0] = 0.0
            part[1] = 0.0
            if moves.widened:
                moves.widen(wide, 0, held, k, dtype)
            for v in T.unroll(vector):
                gap[0] = moves.number(held, wide, k, v) - mean[0]
                if not moves.whole(i + k):
                    gap[0] = T.if_then_else(moves.has(at, i + k, v), gap[0], 0.0)
                if corrected and not summed:
                    part[0] += gap[0]
                part[1] += gap[0] * gap[0]
            if corrected and not summed:
                distance[0] += part[0]
            square[0] += part[1]

    @T.macro
    def join(mean, distance, square, cells, low, box, barrier, at, eps):
        """mean + low = the row's mean, square = 1 / sqrt(variance + eps)."""
        if corrected and not summed:
            over_lanes(distance, min(lanes, 32))
        over_lanes(square, min(lanes, 32))
        if parts > 1:
            found: Any = (mean, square)
            if corrected:
                found = (*found, distance)
            if not moves.even:
                found = (*found, cells)
            share(box, barrier, found, at)
            row = at.thread // lanes
            each = T.alloc_local((len(turns), 4), "float32")
            gap = T.alloc_local((1,), "float32")
            mean[0] = 0.0
            for turn in turns:
                for kind in tuple(range(4)):
                    each[turn, kind] = 0.0
                if there(at, turn):
                    each[turn, 0] = box[0, row, of_lane(at, turn)]
                    each[turn, 1] = box[1, row, of_lane(at, turn)]
                    if corrected:
                        each[turn, 2] = box[2, row, of_lane(at, turn)]
                    if moves.even:
                        each[turn, 3] = T.float32(full)
                    else:
                        each[turn, 3] = box[kinds - 1, row, of_lane(at, turn)]
                mean[0] += each[turn, 0] * each[turn, 3]
            over_lanes(mean, width)
            mean[0] = mean[0] / n
            distance[0] = 0.0
            square[0] = 0.0
            for turn in turns:
                gap[0] = each[turn, 0] - mean[0]
                square[0] += each[turn, 1] + gap[0] * (2.0 * each[turn, 2] + each[turn, 3] * gap[0])
                if corrected:
                    distance[0] += each[turn, 2] + each[turn, 3] * gap[0]
            over_lanes(square, width)
            if corrected:
                over_lanes(distance, width)
        if corrected:
            low[0] = distance[0] / n
            # Rounding may leave a constant row's variance just below zero; NaN stays NaN.
            square[0] = square[0] - low[0] * distance[0]
            square[0] = T.if_then_else(square[0] < 0.0, 0.0, square[0])
        square[0] = T.rsqrt(square[0] / n + eps)

    return SimpleNamespace(
        parts=parts,
        over_lanes=over_lanes,
        expect=expect,
        share=share,
        collect=collect,
        kinds=kinds,
        corrected=corrected,
        summed=summed,
        add_squares=add_squares,
        larger=larger,
        reciprocal_rms=reciprocal_rms,
        add_up=add_up,
        elements=elements,
        warp_mean=warp_mean,
        add_distances=add_distances,
        join=join,
    )
