"""Several rows in one cluster of blocks, as a TileLang program.

What a block reads of the weight and its like serves its part of all the rows. Where a cluster has
one row, it comes from L2 as often as x does from memory.
"""

from types import SimpleNamespace
from typing import Any

from tileops.core.errors import KernelBuildError
from tileops.norm.rows.configs import ITEMSIZE, Build, GroupConfig
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.device import SOURCE as ROWS
from tileops.norm.rows.programs.exchange import SOURCE as EXCHANGE
from tileops.norm.rows.programs.joint import SOURCE as JOINT
from tileops.norm.rows.programs.moves import Place
from tileops.norm.rows.programs.parts import parts

__all__ = ["grouped_rows"]


def grouped_rows(op: RowOp, build: Build, config: GroupConfig) -> Any:
    """``config.rows`` rows in a cluster: first accesses in registers, the rest in shared memory.

    Each thread reads back only what it stored itself. Rows past the last are zeros, not written.

    Raises:
        KernelBuildError: for an op, or a layout of ``build.n``, that this program is not of.
    """
    import tilelang.language as T

    dtype, n = build.dtype, build.n
    if op.statistics != "rms" or op.added or op.quantized:
        raise KernelBuildError(f"{op.name}: no program has several of its rows in a cluster")
    unheld = config.unheld(n)
    if unheld:
        raise KernelBuildError(f"{op.name}: {config} cannot hold rows of {n}: {unheld}")
    threads, vector, unroll, rows = config.threads, config.vector, config.unroll, config.rows
    accesses = config.accesses(n)
    part = parts(op, build, config)
    move, stats = part.move, part.stats
    first = config.in_registers
    # Of each row that has any in registers, how many; then steps, each a part of one row.
    counts = tuple(min(accesses, first - begin) for begin in range(0, first, accesses))
    steps = tuple(divmod(begin, accesses) for begin in range(first, rows * accesses, unroll))
    # Of a weight of float32 no more bytes: 4 accesses spilled 56. With an offset 4 spilled 16.
    kinds = [ITEMSIZE[kind] for kind in (build.weight, build.bias) if kind is not None]
    early_count = config.early * ITEMSIZE[dtype] // max(ITEMSIZE[dtype], *kinds, 0)
    if build.offset:
        early_count = min(early_count, 3)
    exchange = f"{rows}, {threads // 32}, {config.cluster}"

    def place(a: Any, block: Any, thread: Any, row: int) -> Place:
        at = T.cast(block // config.cluster, "int64") * rows + row
        rank = block % config.cluster
        return Place(
            row=at, m=a.m, base=at * n, phase=0, rank=rank, lane=thread, thread=thread, a=a
        )

    def states(a: Any, block: Any, thread: Any) -> list[Any]:
        return [part.row_state(place(a, block, thread, r)) for r in range(rows)]

    def with_columns(row: Any, columns: Any) -> Any:
        return SimpleNamespace(**vars(row), columns=columns)

    @T.macro
    def write(row, held, slot, column_at, k):
        part.normalize(row, held, slot, column_at, 0)
        move.write_rows(row.values, 0, row.largest, row.at, k)

    @T.macro
    def body(a):
        with T.Kernel(
            T.ceildiv(a.m, rows) * config.cluster,
            threads=threads,
            cluster_dims=part.cluster_dims,
            prelude=part.prelude + ROWS + JOINT + EXCHANGE,
        ) as block:
            if part.waits:
                T.pdl_sync()  # see clusters.py
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            thread = T.get_thread_binding()
            stash = T.alloc_shared((max(len(steps), 1), unroll, threads, vector), dtype)
            factors = T.alloc_local((rows,), "float32")
            back = T.alloc_local((1, vector), dtype)
            everywhere = place(a, block, thread, 0)
            early = part.columns(max(early_count, 1), everywhere)
            late = part.columns(1, everywhere)
            state = states(a, block, thread)
            held = [T.alloc_local((count, vector), dtype) for count in counts]
            moving = T.alloc_local((unroll, vector), dtype)

            T.call_extern("handle", f"rows::announce_rows<{exchange}>", thread)
            for r in tuple(range(rows)):
                state[r].factor[0] = 0.0
            for r in tuple(range(len(counts))):
                move.read_rows(held[r], back, counts[r], state[r].at, 0)
            for step in tuple(range(len(steps))):
                r, i = steps[step]
                move.read_rows(moving, back, unroll, state[r].at, i)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        stash[step, u, thread, v] = moving[u, v]
                stats.add_squares(moving, unroll, state[r].factor)
            if early_count > 0:
                move.read_columns(early, early_count, everywhere, 0)
            for r in tuple(range(len(counts))):
                stats.add_squares(held[r], counts[r], state[r].factor)

            for r in tuple(range(rows)):
                factors[r] = state[r].factor[0]
            T.call_extern("handle", "clusters::ready")
            T.call_extern(
                "handle",
                f"rows::join_rows<{exchange}>",
                T.address_of(factors[0]),
                T.float32(n),
                a.eps,
                thread,
                everywhere.rank,
            )
            for r in tuple(range(rows)):
                state[r].factor[0] = factors[r]

            for k in tuple(range(accesses)):
                if k >= early_count:
                    move.read_columns(late, 1, everywhere, k)
                for r in tuple(range(rows)):
                    row = with_columns(state[r], early if k < early_count else late)
                    column_at = k if k < early_count else 0
                    if r * accesses + k < first:
                        write(row, held[r], k, column_at, k)
                    else:
                        c = (r * accesses + k - first) // unroll
                        u = (r * accesses + k - first) % unroll
                        for v in T.vectorized(vector):
                            back[0, v] = stash[c, u, thread, v]
                        write(row, back, 0, column_at, k)

    return body
