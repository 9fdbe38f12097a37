"""What the row programs are made of besides moves and statistics, as TileLang macros."""

from types import SimpleNamespace
from typing import Any

from tileops.norm.clusters import in_clusters
from tileops.norm.rows.configs import Build, Config
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.moves import Line, Place, moves
from tileops.norm.rows.programs.products import products
from tileops.norm.rows.programs.quantized import quantized
from tileops.norm.rows.programs.statistics import statistics

__all__ = ["parts"]


def parts(op: RowOp, build: Build, config: Config) -> Any:
    """The macros and functions that a program of ``op`` is written with."""
    import tilelang.language as T

    n, dtype = build.n, build.dtype
    move = moves(op, n, dtype, config)
    stats = statistics(op, n, dtype, config, move)
    layer = op.statistics == "layer"
    summing = products(op, n, dtype, config, move, stats) if config.products else None
    doubted = layer and summing is not None
    # What each column of x is scaled and shifted by after the statistics, and its dtype.
    kinds = {"weight": build.weight, "bias": build.bias}
    if op.modulated:
        kinds = {"scale": dtype, "shift": dtype}

    def place(a: Any, block: Any, thread: Any) -> Place:
        """Where ``thread`` of ``block`` is."""
        rank = block % config.cluster if config.cluster > 1 else 0
        row = T.cast(block // config.cluster, "int64") * config.rows
        lane = thread
        if config.rows > 1:
            row, lane = row + thread // config.lanes, thread % config.lanes
        base = row * n
        phase = T.cast(base % config.vector, "int32") if config.phased else 0
        return Place(
            row=row, m=a.m, base=base, phase=phase, rank=rank, lane=lane, thread=thread, a=a
        )

    def columns(names: Any, count: int, at: Place) -> list[Any]:
        """Registers for ``count`` accesses of each tensor of ``names`` that there is."""
        found = []
        for name, kind in names.items():
            if kind is not None:
                first = T.alloc_local((1,), "int64")
                base = first[0] if op.modulated else T.int64(0)
                line = Line(tensor=getattr(at.a, name), base=base, kind=kind, own_phase=True)
                buffer = T.alloc_local((count, config.vector), kind)
                found.append(SimpleNamespace(name=name, line=line, buffer=buffer, first=first))
        return found

    def state(count: int, held: int, at: Place, taken: int = 0) -> Any:
        """What a thread keeps of its row.

        ``count``: accesses of a column, and of the residual, at a time; ``taken``: of the residual,
        where they are not as many. ``held``: accesses whose products with the weight are kept, of
        a quantized op.
        """
        return SimpleNamespace(
            a=at.a,
            other=T.alloc_local(((taken or count) if op.added else 1, config.vector), dtype),
            values=T.alloc_local((max(held, 1), config.vector), "float32"),
            columns=columns(kinds, count, at),
            gates=columns({"gate": dtype if op.gated else None}, count, at),
            mean=T.alloc_local((1,), "float32"),
            low=T.alloc_local((1,), "float32"),
            # The sum of squares, then what they make of it.
            factor=T.alloc_local((1,), "float32"),
            distance=T.alloc_local((1,), "float32"),
            cells=T.alloc_local((1,), "float32"),
            # The largest magnitude, then what the result is multiplied by.
            largest=T.alloc_local((1,), "float32"),
            box=T.alloc_shared((stats.kinds, config.rows, stats.parts), "float32"),
            barrier=T.alloc_shared((1,), "uint64") if config.cluster > 1 else None,
            # Where warps, and blocks, exchange distances from the row's mean.
            later_box=T.alloc_shared((2, 1, stats.parts), "float32") if doubted else None,
            later=T.alloc_shared((1,), "uint64") if doubted and config.cluster > 1 else None,
            **summed(),
        )

    def summed() -> dict[str, Any]:
        """What a thread keeps of a row whose sums tensor cores find."""
        if summing is None:
            return {}
        return {
            "sums": T.alloc_local((summing.size,), "float32"),
            # Whether they are exact enough, and what they make of the row.
            "plain": T.alloc_local((1,), "bool"),
            "shift": T.alloc_local((1,), "float32"),
        }

    def row_state(at: Place) -> Any:
        """What a thread keeps of one of several rows; their columns are not among it."""
        return SimpleNamespace(
            a=at.a,
            at=at,
            values=T.alloc_local((1, config.vector), "float32"),
            mean=T.alloc_local((1,), "float32"),
            low=T.alloc_local((1,), "float32"),
            factor=T.alloc_local((1,), "float32"),
            distance=T.alloc_local((1,), "float32"),
            largest=T.alloc_local((1,), "float32"),
            **summed(),
        )

    @T.macro
    def begin(s, at):
        if config.cluster > 1:
            stats.expect(s.box, s.barrier, at)
            if doubted:
                stats.expect(s.later_box, s.later, at)
            T.call_extern("handle", "clusters::arrive")
        if summing is not None:
            summing.begin(s)
        s.factor[0] = 0.0
        s.distance[0] = 0.0
        s.largest[0] = 0.0
        if op.modulated:
            for column in (*s.gates, *s.columns):
                column.first[0] = (
                    T.call_extern(
                        "int64",
                        "rows::shared_row",
                        at.row,
                        getattr(at.a, f"{column.name}_rows"),
                        at.m,
                    )
                    * n
                )

    @T.macro
    def begin_mean(s, held, count, at, i):
        """What distances are taken from: the mean of the warp's ``count`` accesses from i on."""
        if layer:
            s.mean[0] = 0.0
            stats.add_up(held, count, s.mean)
            s.cells[0] = stats.elements(at, i, count)
            stats.warp_mean(s.mean, s.cells, s.distance)
            if stats.summed:
                # Else the floats wait for the mean in registers, of which there are too few.
                move.keep_packed(held, count, dtype, s.mean)

    @T.macro
    def add(s, held, count, at, i):
        """Add up squares, or distances and their squares, of ``count`` accesses from i on."""
        if layer:
            stats.add_distances(held, count, s.mean, s.distance, s.factor, at, i)
        else:
            stats.add_squares(held, count, s.factor)

    @T.macro
    def end(s, at):
        """The row's mean and factor, which all its threads agree on."""
        if layer:
            s.cells[0] = stats.elements(at, 0, config.accesses(n))
            stats.join(s.mean, s.distance, s.factor, s.cells, s.low, s.box, s.barrier, at, at.a.eps)
        else:
            stats.reciprocal_rms(s.factor, s.largest, s.box, s.barrier, at, at.a.eps)

    @T.macro
    def normalize(s, held, k, column_at, slot):
        """values[slot] = held[k], normalized, and scaled and shifted by the columns."""
        values = s.values
        wide = T.alloc_local((1, config.vector), "float32")
        if move.widened:
            move.widen(wide, 0, held, k, dtype)
        for v in T.unroll(config.vector):
            if layer and stats.corrected:
                values[slot, v] = (move.number(held, wide, k, v) - s.mean[0]) * s.factor[0] - s.low[
                    0
                ] * s.factor[0]
            elif layer:
                values[slot, v] = (move.number(held, wide, k, v) - s.mean[0]) * s.factor[0]
            else:
                values[slot, v] = move.number(held, wide, k, v) * s.factor[0]
        for column in s.columns:
            for v in T.unroll(config.vector):
                operand = T.cast(column.buffer[column_at, v], "float32")
                if column.name == "weight":
                    values[slot, v] = values[slot, v] * (
                        operand + s.a.offset if build.offset else operand
                    )
                elif column.name == "scale":
                    values[slot, v] = values[slot, v] * (1.0 + operand)
                else:
                    values[slot, v] = values[slot, v] + operand

    @T.macro
    def write(s, held, count, at, i, column_at):
        """``count`` accesses of the result, from access i on, with columns from column_at on.

        Not of a quantized one, which has its own.
        """
        for k in move.counted(count):
            normalize(s, held, k, column_at + k, 0)
            move.write_rows(s.values, 0, s.largest, at, i + k)

    # How TileLang, the compiler and the kernel are told of clusters: see clusters.py.
    told = config.cluster > 1 and build.mixed
    return SimpleNamespace(
        cluster_dims=None if build.mixed else config.cluster,
        prelude=in_clusters(config.block, config.cluster) if told else "",
        waits=config.cluster > 1 and not build.mixed,
        move=move,
        layer=layer,
        place=place,
        state=state,
        row_state=row_state,
        columns=lambda count, at: columns(kinds, count, at),
        stats=stats,
        normalize=normalize,
        begin=begin,
        begin_mean=begin_mean,
        add=add,
        end=end,
        summing=summing,
        quantized=quantized(op, build, config, move, stats, normalize),
        write=write,
    )
