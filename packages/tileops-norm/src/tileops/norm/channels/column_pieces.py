"""The steps of the programs that have channels side by side, as TileLang macros.

A row is one sample: all its channels, one after the other. A block has a tile of ``tile`` accesses
of each row, which are whole channels, and a thread keeps to the columns of one of them, in every
``rows``-th row. ``mean``, ``squares``, ``reciprocal`` and ``offset`` are of a thread's columns.
"""

from types import SimpleNamespace
from typing import Any

from tileops.norm.channels.pieces import pieces
from tileops.norm.channels.traits import Traits

__all__ = ["column_pieces"]


def column_pieces(traits: Traits, threads: int, vector: int, cluster: int = 1) -> Any:
    """Macros for blocks of ``threads``, ``cluster`` of which share a tile's rows."""
    import tilelang.language as T

    dtype, affine_dtype = traits.dtype, traits.affine or traits.dtype
    base = pieces(traits, vector, False)

    def divide(n: Any, magic: Any, shift: Any) -> Any:
        return T.call_extern("int32", "tileops::divide", n, magic, shift)

    @T.macro
    def lay_out(own, counts, thread, count, mean, squares):
        """Each thread's number of rows, and the mean and squares of each of its columns."""
        counts[thread] = count
        for v in T.vectorized(vector):
            own[0, thread * vector + v] = mean[v]
        for v in T.vectorized(vector):
            own[1, thread * vector + v] = squares[v]
        T.sync_threads()

    @T.macro
    def gather(own, counts, state, channel, rows, tile, space, magic, shift, thread):
        """state = the statistics of one of the tile's channels, in each thread of a warp."""
        base.clear(state)
        for k in T.serial(T.ceildiv(rows * space - thread % 32, 32)):
            n = k * 32 + thread % 32
            r = divide(n, magic, shift)
            e = r * (tile * vector) + channel * space + (n - r * space)
            if counts[r * tile] > 0.0:
                base.merge(state, counts[r * tile], own[0, e], own[1, e])
        base.across(state, 32)

    @T.macro
    def spread(theirs, barrier, state, channel, rank, thread):
        """Every block of the cluster gets this one's statistics of a channel."""
        if cluster > 1:
            if thread % 32 < cluster:
                for k in T.unroll(3):
                    T.call_extern(
                        "handle",
                        "clusters::send",
                        T.address_of(theirs[k, rank, channel]),
                        *(T.address_of(barrier[0]), thread % 32, state[k]),
                    )
        elif thread % 32 == 0:
            for k in T.unroll(3):
                theirs[k, 0, channel] = state[k]

    @T.macro
    def meet(barrier):
        """Behind it ``theirs`` is whole."""
        if cluster > 1:
            T.call_extern("handle", "clusters::await", T.address_of(barrier[0]))
        else:
            T.sync_threads()

    @T.macro
    def collect(theirs, state, channel):
        """state = the statistics of one of the tile's channels, from all blocks of the cluster."""
        for k in T.unroll(3):
            state[k] = theirs[k, 0, channel]
        for r in T.unroll(1, cluster):
            if theirs[0, r, channel] > 0.0:
                base.merge(
                    *(state, theirs[0, r, channel]),
                    *(theirs[1, r, channel], theirs[2, r, channel]),
                )

    @T.macro
    def look_up(
        final, weight, bias, channels, mean, reciprocal, offset, first, column, magic, shift
    ):
        """The mean, the reciprocal deviation times the weight, and the bias of each column.

        final: the mean and the reciprocal deviation of each of the tile's channels.
        """
        W = T.make_tensor_from_addr(weight, (channels,), affine_dtype)
        B = T.make_tensor_from_addr(bias, (channels,), affine_dtype)
        for v in T.unroll(vector):
            channel = divide(column * vector + v, magic, shift)
            mean[v] = final[0, channel]
            reciprocal[v] = final[1, channel]
            if traits.weighted:
                reciprocal[v] = reciprocal[v] * T.cast(W[first + channel], "float32")
            offset[v] = T.cast(B[first + channel], "float32") if traits.biased else 0.0

    @T.macro
    def write(Y, held, i, at, mean, reciprocal, offset):
        """Access ``at`` = held[i], normalized, each column by its own channel."""
        out = T.alloc_local((vector,), dtype)
        for v in T.unroll(vector):
            out[v] = T.cast(
                (T.cast(held[i, v], "float32") - mean[v]) * reciprocal[v] + offset[v], dtype
            )
        for v in T.vectorized(vector):
            Y[at, v] = out[v]

    @T.macro
    def read_rows(X, held, count, row, step, end, active, width, at):
        """held[i] = the thread's access to row + i * step, zeros from ``end`` on."""
        for i in T.unroll(count):
            if active and row + i * step < end:
                for v in T.vectorized(vector):
                    held[i, v] = X[(row + i * step) * width + at, v]
            else:
                for v in T.vectorized(vector):
                    held[i, v] = T.cast(0, dtype)

    @T.macro
    def add_rows(held, count, row, step, end, active, total, mean, squares):
        """Merges what ``read_rows`` gave into each column's mean and squares."""
        number = T.alloc_local((1,), "float32")
        part = T.alloc_local((vector, 2), "float32")
        share = T.alloc_local((2,), "float32")
        number[0] = 0.0
        for i in T.unroll(count):
            if active and row + i * step < end:
                number[0] += 1.0
        if number[0] > 0.0:
            for v in T.unroll(vector):
                part[v, 0] = 0.0
                part[v, 1] = 0.0
            for i in T.unroll(count):
                for v in T.unroll(vector):
                    part[v, 0] += T.cast(held[i, v], "float32")
            for v in T.unroll(vector):
                part[v, 0] = part[v, 0] / number[0]
            for i in T.unroll(count):
                if row + i * step < end:
                    for v in T.unroll(vector):
                        part[v, 1] += (T.cast(held[i, v], "float32") - part[v, 0]) * (
                            T.cast(held[i, v], "float32") - part[v, 0]
                        )
            share[0] = number[0] / (total[0] + number[0])
            for v in T.unroll(vector):
                share[1] = part[v, 0] - mean[v]
                squares[v] += part[v, 1] + share[1] * share[1] * total[0] * share[0]
                mean[v] += share[1] * share[0]
            total[0] += number[0]

    @T.macro
    def normalize_rows(
        X, Y, held, count, start, end, rows, row, active, width, at, mean, reciprocal, offset
    ):
        """The thread's columns of rows ``start`` to ``end``, the last first."""
        chunks = T.cast(T.ceildiv(end - start, rows * count), "int32")
        for c in T.serial(chunks):
            r = start + (chunks - 1 - c) * (rows * count) + row
            read_rows(X, held, count, r, rows, end, active, width, at)
            for i in T.unroll(count):
                if active and r + i * rows < end:
                    write(Y, held, i, (r + i * rows) * width + at, mean, reciprocal, offset)

    return SimpleNamespace(
        read_rows=read_rows,
        add_rows=add_rows,
        normalize_rows=normalize_rows,
        lay_out=lay_out,
        gather=gather,
        spread=spread,
        meet=meet,
        collect=collect,
        look_up=look_up,
        write=write,
        merge=base.merge,
        clear=base.clear,
        across=base.across,
        announce=base.announce,
        track=base.track,
    )
