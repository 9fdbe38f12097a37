"""Several rows in one cluster of blocks, as a TileLang program.

What a block reads of the weight and its like serves its part of all the rows. Where a cluster has
one row, it comes from L2 as often as x does: LayerNorm reads three times what it writes then, which
at the speed of memory is more than L2 gives.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tileops.norm.rows.configs import Build, GroupConfig
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.device import SOURCE as ROWS
from tileops.norm.rows.programs.exchange import SOURCE as EXCHANGE
from tileops.norm.rows.programs.moves import Place
from tileops.norm.rows.programs.parts import parts

__all__ = ["grouped_rows"]


@dataclass(frozen=True)
class Piece:
    """``count`` accesses of row ``row`` of the group, from ``first`` on, that are read together.

    ``place``: that of the first among all of the thread's accesses.
    """

    row: int
    first: int
    count: int
    place: int


def _pieces(begin: int, end: int, accesses: int) -> tuple[Piece, ...]:
    """Accesses ``begin`` to ``end`` of a thread, of which each row has ``accesses``."""
    found = []
    while begin < end:
        row, first = divmod(begin, accesses)
        count = min(accesses - first, end - begin)
        found.append(Piece(row, first, count, begin))
        begin += count
    return tuple(found)


def grouped_rows(op: RowOp, build: Build, config: GroupConfig) -> Any:
    """``config.rows`` rows in a cluster: first accesses in registers, the rest in shared memory.

    Each thread reads back only what it stored itself. Rows past the last are zeros, not written.
    """
    import tilelang.language as T

    dtype, n = build.dtype, build.n
    threads, vector, unroll, rows = config.threads, config.vector, config.unroll, config.rows
    accesses = config.accesses(n)
    part = parts(op, build, config)
    move, stats = part.move, part.stats
    first = config.in_registers
    held_pieces = _pieces(0, first, accesses)
    steps = tuple(
        _pieces(begin, begin + unroll, accesses) for begin in range(first, rows * accesses, unroll)
    )
    assert config.holds(op.statistics == "layer", n, dtype), (n, dtype, config)
    assert not any((op.added, op.modulated, op.quantized)), op
    exchange = f"{rows}, {threads // 32}, {config.cluster}, {'true' if part.layer else 'false'}"

    def place(a: Any, block: Any, thread: Any, row: int) -> Place:
        at = T.cast(block // config.cluster, "int64") * rows + row
        rank = block % config.cluster
        return Place(
            row=at, m=a.m, base=at * n, phase=0, rank=rank, lane=thread, thread=thread, a=a
        )

    def states(a: Any, block: Any, thread: Any) -> list[Any]:
        return [part.row_state(place(a, block, thread, r)) for r in range(rows)]

    def registers(pieces: tuple[Piece, ...]) -> list[Any]:
        return [T.alloc_local((piece.count, vector), dtype) for piece in pieces]

    def with_columns(row: Any, columns: Any) -> Any:
        return SimpleNamespace(**vars(row), columns=columns)

    @T.macro
    def measure(row, held, count, i):
        """Add up what the statistics of a row need of ``count`` accesses from i on."""
        if part.layer:
            row.mean[0] = 0.0
            stats.add_up(held, count, row.mean)
            row.cells[0] = stats.elements(row.at, i, count)
            stats.warp_mean(row.mean, row.cells)
            stats.add_distances(held, count, row.mean, row.distance, row.factor, row.at, i)
        else:
            stats.add_squares(held, count, row.factor)

    @T.macro
    def ask_ahead(at, thread):
        """Have L2 read the block's part of the rows of another group."""
        another = at.row + config.ahead * rows + thread
        if thread < rows and another < at.m:
            T.call_extern(
                "handle",
                "rows::ask_for",
                at.a.x + (another * n + at.rank * move.slice_size) * config.itemsize(dtype),
                move.slice_size * config.itemsize(dtype),
            )

    @T.macro
    def write(row, held, slot, column_at, k):
        part.normalize(row, held, slot, column_at, 0)
        move.write_rows(row.values, 0, row.largest, row.at, k)

    @T.macro
    def body(a):
        with T.Kernel(
            T.ceildiv(a.m, rows) * config.cluster,
            threads=threads,
            cluster_dims=config.cluster,
            prelude=ROWS + EXCHANGE,
        ) as block:
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            thread = T.get_thread_binding()
            stash = T.alloc_shared((max(len(steps), 1), unroll, threads, vector), dtype)
            means = T.alloc_local((rows,), "float32")
            factors = T.alloc_local((rows,), "float32")
            back = T.alloc_local((1, vector), dtype)
            everywhere = place(a, block, thread, 0)
            early = part.columns(max(config.early, 1), everywhere)
            late = part.columns(1, everywhere)
            state = states(a, block, thread)
            held = registers(held_pieces)
            moving = registers(steps[0] if steps else ())

            T.call_extern("handle", f"rows::announce_rows<{exchange}>", thread)
            for r in tuple(range(rows)):
                state[r].factor[0] = 0.0
                state[r].distance[0] = 0.0
            for p in tuple(range(len(held_pieces))):
                piece = held_pieces[p]
                move.read_rows(held[p], back, piece.count, state[piece.row].at, piece.first)
            for step in tuple(range(len(steps))):
                for p in tuple(range(len(steps[step]))):
                    piece = steps[step][p]
                    move.read_rows(moving[p], back, piece.count, state[piece.row].at, piece.first)
                for p in tuple(range(len(steps[step]))):
                    piece = steps[step][p]
                    for k in tuple(range(piece.count)):
                        for v in T.vectorized(vector):
                            stash[step, piece.place - steps[step][0].place + k, thread, v] = moving[
                                p
                            ][k, v]
                    measure(state[piece.row], moving[p], piece.count, piece.first)
            if config.early > 0:
                move.read_columns(early, config.early, everywhere, 0)
            for p in tuple(range(len(held_pieces))):
                piece = held_pieces[p]
                measure(state[piece.row], held[p], piece.count, piece.first)
            if config.ahead > 0:
                ask_ahead(everywhere, thread)

            for r in tuple(range(rows)):
                factors[r] = state[r].factor[0]
                means[r] = state[r].mean[0] if part.layer else 0.0
            T.call_extern("handle", "clusters::ready")
            T.call_extern(
                "handle",
                f"rows::join_rows<{exchange}>",
                T.address_of(means[0]),
                T.address_of(factors[0]),
                T.float32(accesses * 32 * vector),
                T.float32(n),
                a.eps,
                thread,
                everywhere.rank,
            )
            for r in tuple(range(rows)):
                state[r].factor[0] = factors[r]
                state[r].mean[0] = means[r]
            if config.packed:
                for p in tuple(range(len(held_pieces))):
                    row = state[held_pieces[p].row]
                    move.keep_packed(held[p], held_pieces[p].count, dtype, row.factor)
                for column in early:
                    move.keep_packed(column.buffer, config.early, column.line.kind, factors)

            for k in tuple(range(accesses)):
                if k >= config.early:
                    move.read_columns(late, 1, everywhere, k)
                for r in tuple(range(rows)):
                    row = with_columns(state[r], early if k < config.early else late)
                    column_at = k if k < config.early else 0
                    if r * accesses + k < first:
                        write(row, held[r], k, column_at, k)
                    else:
                        c = (r * accesses + k - first) // unroll
                        u = (r * accesses + k - first) % unroll
                        for v in T.vectorized(vector):
                            back[0, v] = stash[c, u, thread, v]
                        write(row, back, 0, column_at, k)

    return body
