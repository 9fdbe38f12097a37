"""Several rows in one cluster of blocks, as a TileLang program.

What a block reads of the weight and its like serves its part of all the rows. Where a cluster has
one row, it comes from L2 as often as x does from memory.
"""

from types import SimpleNamespace
from typing import Any

from tileops.core.errors import KernelBuildError
from tileops.norm.rows.configs import Build, GroupConfig
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.device import SOURCE as ROWS
from tileops.norm.rows.programs.exchange import SOURCE as EXCHANGE
from tileops.norm.rows.programs.joint import SOURCE as JOINT
from tileops.norm.rows.programs.moves import Place
from tileops.norm.rows.programs.parts import parts
from tileops.norm.rows.programs.products import SOURCE as PRODUCTS

__all__ = ["grouped_rows"]


def grouped_rows(op: RowOp, build: Build, config: GroupConfig) -> Any:
    """``config.rows`` rows in a cluster: first accesses in registers, the rest in shared memory.

    Each thread reads back only what it stored itself. Rows past the last are zeros, not written.

    Raises:
        KernelBuildError: for an op, or a layout of ``build.n``, that this program is not of.
    """
    import tilelang.language as T

    dtype, n = build.dtype, build.n
    if op.statistics != "layer" or op.modulated or op.added or op.quantized:
        raise KernelBuildError(f"{op.name}: no program has several of its rows in a cluster")
    unheld = config.unheld(n)
    if unheld:
        raise KernelBuildError(f"{op.name}: {config} cannot hold rows of {n}: {unheld}")
    threads, vector, unroll, rows = config.threads, config.vector, config.unroll, config.rows
    accesses = config.accesses(n)
    part = parts(op, build, config)
    move, stats, summing = part.move, part.stats, part.summing
    first = config.in_registers
    # Of each row that has any in registers, how many; then steps, each a part of one row.
    counts = tuple(min(accesses, first - begin) for begin in range(0, first, accesses))
    steps = tuple(divmod(begin, accesses) for begin in range(first, rows * accesses, unroll))
    # Of each row the squares and the sum, or the distances.
    exchange = f"{2 * rows}, {threads // 32}, {config.cluster}"

    def place(a: Any, block: Any, thread: Any, row: int) -> Place:
        at = T.cast(block // config.cluster, "int64") * rows + row
        rank = block % config.cluster
        return Place(
            row=at, m=a.m, base=at * n, phase=0, rank=rank, lane=thread, thread=thread, a=a
        )

    def states(a: Any, block: Any, thread: Any) -> list[Any]:
        return [part.row_state(place(a, block, thread, r)) for r in range(rows)]

    @T.macro
    def write(row, held, slot, k, exactly):
        if not exactly:
            summing.write(row, held, slot, 0, row.at, k, build)
        elif row.plain[0]:
            # The same bits, whatever its neighbours are.
            summing.write(row, held, slot, 0, row.at, k, build)
        else:
            part.normalize(row, held, slot, 0, 0)
            move.write_rows(row.values, 0, row.largest, row.at, k)

    @T.macro
    def take_back(stash, place, back, thread):
        for v in T.vectorized(vector):
            back[0, v] = stash[place // unroll, place % unroll, thread, v]

    @T.macro
    def join(sums, thread, rank, turn):
        """sums = those of the rows."""
        T.call_extern(
            "handle",
            f"rows::join_rows<{exchange}, {turn}>",
            T.address_of(sums[0]),
            thread,
            rank,
        )

    @T.macro
    def add_distances(row, held, slot, distance, square):
        one = T.alloc_local((1, vector), dtype)
        for v in T.vectorized(vector):
            one[0, v] = held[slot, v]
        stats.add_distances(one, 1, row.mean, distance, square, row.at, 0)

    @T.macro
    def measure_exactly(state, held, back, stash, sums, a, thread, rank):
        """Of all rows, for those that are not plain."""
        for r in tuple(range(rows)):
            distance = T.alloc_local((1,), "float32")
            square = T.alloc_local((1,), "float32")
            distance[0] = 0.0
            square[0] = 0.0
            for k in tuple(range(accesses)):
                if r * accesses + k < first:
                    add_distances(state[r], held[r], k, distance, square)
                else:
                    take_back(stash, r * accesses + k - first, back, thread)
                    add_distances(state[r], back, 0, distance, square)
            sums[2 * r] = square[0]
            sums[2 * r + 1] = distance[0]
        join(sums, thread, rank, 1)
        for r in tuple(range(rows)):
            if not state[r].plain[0]:
                state[r].factor[0] = sums[2 * r]
                state[r].distance[0] = sums[2 * r + 1]
                summing.find_exactly(state[r], a.eps)
        for r in tuple(range(len(counts))):
            for k in tuple(range(counts[r])):
                move.keep_narrow(held[r], k, dtype, state[r].factor[0])

    @T.macro
    def write_all(state, columns, held, back, stash, everywhere, thread, exactly):
        for k in tuple(range(accesses)):
            move.read_columns(columns, 1, everywhere, k)
            for r in tuple(range(rows)):
                row = SimpleNamespace(**vars(state[r]), columns=columns)
                if r * accesses + k < first:
                    write(row, held[r], k, k, exactly)
                else:
                    take_back(stash, r * accesses + k - first, back, thread)
                    write(row, back, 0, k, exactly)

    @T.macro
    def body(a):
        with T.Kernel(
            T.ceildiv(a.m, rows) * config.cluster,
            threads=threads,
            cluster_dims=part.cluster_dims,
            prelude=part.prelude + ROWS + JOINT + EXCHANGE + PRODUCTS,
        ) as block:
            if part.waits:
                T.pdl_sync()  # see clusters.py
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            thread = T.get_thread_binding()
            stash = T.alloc_shared((max(len(steps), 1), unroll, threads, vector), dtype)
            sums = T.alloc_local((2 * rows,), "float32")
            plain = T.alloc_local((1,), "bool")
            back = T.alloc_local((1, vector), dtype)
            everywhere = place(a, block, thread, 0)
            columns = part.columns(1, everywhere)
            state = states(a, block, thread)
            held = [T.alloc_local((count, vector), dtype) for count in counts]
            moving = T.alloc_local((unroll, vector), dtype)

            for turn in (0, 1):
                T.call_extern("handle", f"rows::expect_rows<{exchange}, {turn}>", thread)
            T.call_extern("handle", "clusters::arrive")
            for r in tuple(range(rows)):
                summing.begin(state[r])
            for r in tuple(range(len(counts))):
                move.read_rows(held[r], back, counts[r], state[r].at, 0)
            for step in tuple(range(len(steps))):
                r, i = steps[step]
                move.read_rows(moving, back, unroll, state[r].at, i)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        stash[step, u, thread, v] = moving[u, v]
                summing.add(state[r], moving, unroll)
            for r in tuple(range(len(counts))):
                summing.add(state[r], held[r], counts[r])

            for r in tuple(range(rows)):
                summing.take(state[r], thread)
                sums[2 * r] = state[r].factor[0]
                sums[2 * r + 1] = state[r].mean[0]
            T.call_extern("handle", "clusters::ready")
            join(sums, thread, everywhere.rank, 0)
            plain[0] = T.bool(True)
            for r in tuple(range(rows)):
                state[r].factor[0] = sums[2 * r]
                state[r].mean[0] = sums[2 * r + 1]
                summing.find(state[r], a.eps)
                plain[0] = T.And(plain[0], state[r].plain[0])
            if plain[0]:
                write_all(state, columns, held, back, stash, everywhere, thread, False)
            else:
                measure_exactly(state, held, back, stash, sums, a, thread, everywhere.rank)
                write_all(state, columns, held, back, stash, everywhere, thread, True)

    return body
