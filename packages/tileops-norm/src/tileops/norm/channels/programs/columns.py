"""Channels of a batch side by side in registers: read once, by a block or by a cluster."""

from typing import Any

from tileops.norm.channels.column_pieces import column_pieces
from tileops.norm.channels.layouts import MOST_CHANNELS, ColumnsLayout
from tileops.norm.channels.pieces import PRELUDE
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "columns"]

#: The parameters of the program, in order; ``samples`` are rows, ``width`` accesses of a row,
#: ``tile`` those of a block's part of it, ``together`` that part's channels, and ``magic`` and
#: ``shift`` divide by ``space``.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var", "counter"),
    *("samples", "channels", "space", "width", "tile", "together", "magic", "shift"),
    *("elements", "eps", "momentum"),
)


def columns(traits: Traits, layout: ColumnsLayout) -> Any:
    """A thread keeps to one access's columns and holds ``accesses`` rows of it.

    It sums up each column by itself; then a warp takes a channel and merges its columns, from all
    the threads that hold some, and each thread looks up the channels of its own columns again.
    """
    import tilelang.language as T

    threads, vector, accesses = layout.threads, layout.vector, layout.accesses
    cluster, dtype, running = layout.cluster, traits.dtype, traits.running
    piece = column_pieces(traits, threads, vector, cluster)
    counts_at_once = traits.counted and not traits.averaged

    @T.prim_func
    def columns(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        counter: T.int64,
        samples: T.int64,
        channels: T.int32,
        space: T.int32,
        width: T.int64,
        tile: T.int32,
        together: T.int32,
        magic: T.int64,
        shift: T.int32,
        elements: T.float32,
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(
            T.ceildiv(channels, together) * cluster,
            threads=threads,
            cluster_dims=cluster if cluster > 1 else None,
            prelude=PRELUDE,
        ) as block:
            X = T.make_tensor_from_addr(x, (width, vector), dtype)
            Y = T.make_tensor_from_addr(y, (width, vector), dtype)
            values = T.alloc_local((accesses, vector), dtype)
            count = T.alloc_local((1,), "float32")
            mean = T.alloc_local((vector,), "float32")
            squares = T.alloc_local((vector,), "float32")
            reciprocal = T.alloc_local((vector,), "float32")
            offset = T.alloc_local((vector,), "float32")
            own = T.alloc_shared((2, threads * vector), "float32")
            counts = T.alloc_shared((threads,), "float32")
            theirs = T.alloc_shared((3, cluster, MOST_CHANNELS), "float32")
            final = T.alloc_shared((2, MOST_CHANNELS), "float32")
            barrier = T.alloc_shared((1,), "uint64")
            if cluster > 1:
                T.pdl_sync()  # see clusters.py
            state = T.alloc_local((3,), "float32")
            thread = T.get_thread_binding()
            rank = T.cast(block % cluster, "int32")
            index = T.cast(block // cluster, "int32")
            kept = T.alloc_local((2,), "int32")
            kept[0] = T.cast(threads // T.cast(tile, "uint32"), "int32")
            kept[1] = T.cast(T.cast(thread, "uint32") // T.cast(tile, "uint32"), "int32")
            rows = kept[0]
            row = kept[1]
            column = thread - row * tile
            at = T.cast(index, "int64") * tile + column
            active = row < rows and at < width
            first = index * together
            here = T.min(together, channels - first)
            step = rows * cluster
            start = rank * rows + row

            if cluster > 1:
                piece.announce(barrier, theirs, thread, here * cluster)
            for i in T.unroll(accesses):
                if active and start + i * step < samples:
                    for v in T.vectorized(vector):
                        values[i, v] = X[T.cast(start + i * step, "int64") * width + at, v]
                else:
                    for v in T.vectorized(vector):
                        values[i, v] = T.cast(0, dtype)
            count[0] = 0.0
            for i in T.unroll(accesses):
                if active and start + i * step < samples:
                    count[0] += 1.0
            for v in T.unroll(vector):
                mean[v] = 0.0
                squares[v] = 0.0
            for i in T.unroll(accesses):
                for v in T.unroll(vector):
                    mean[v] += T.cast(values[i, v], "float32")
            for v in T.unroll(vector):
                mean[v] = mean[v] / T.max(count[0], 1.0)
            for i in T.unroll(accesses):
                if active and start + i * step < samples:
                    for v in T.unroll(vector):
                        squares[v] += (T.cast(values[i, v], "float32") - mean[v]) * (
                            T.cast(values[i, v], "float32") - mean[v]
                        )
            if cluster > 1:
                # Some warps write ``final`` while nothing but what others sent says that these
                # have read ``own`` and ``counts``: it may not have the place of one of them.
                T.call_extern(
                    "handle",
                    "clusters::keep",
                    T.address_of(barrier[0]),
                    T.address_of(final[0, 0]),
                )
            piece.lay_out(own, counts, thread, count[0], mean, squares)
            if cluster > 1:
                T.call_extern("handle", "clusters::ready")
            for k in T.serial(T.ceildiv(here - thread // 32, threads // 32)):
                channel = k * (threads // 32) + thread // 32
                piece.gather(own, counts, state, channel, rows, tile, space, magic, shift, thread)
                piece.spread(theirs, barrier, state, channel, rank, thread)
            piece.meet(barrier)
            if thread < here:
                piece.collect(theirs, state, thread)
                final[0, thread] = state[1]
                final[1, thread] = T.rsqrt(state[2] / elements + eps)
                if running and rank == 0:
                    RM = T.make_tensor_from_addr(running_mean, (channels,), running)
                    RV = T.make_tensor_from_addr(running_var, (channels,), running)
                    factor = T.alloc_local((1,), "float32")
                    factor[0] = momentum
                    if traits.averaged:
                        C = T.make_tensor_from_addr(counter, (1,), "int64")
                        factor[0] = 1.0 / T.cast(C[0] + 1, "float32")
                    piece.track(RM, first + thread, state[1], factor[0])
                    piece.track(RV, first + thread, state[2] / (elements - 1.0), factor[0])
            T.sync_threads()
            if counts_at_once and block == 0 and thread == 0:
                C = T.make_tensor_from_addr(counter, (1,), "int64")
                C[0] = C[0] + 1

            if active:
                piece.look_up(
                    *(final, weight, bias, channels, mean, reciprocal, offset),
                    *(first, column, magic, shift),
                )
                for i in T.unroll(accesses):
                    if start + i * step < samples:
                        piece.write(
                            *(Y, values, i, T.cast(start + i * step, "int64") * width + at),
                            *(mean, reciprocal, offset),
                        )
            if cluster > 1:
                T.call_extern(
                    "handle",
                    "clusters::keep",
                    T.address_of(barrier[0]),
                    T.address_of(theirs[0, 0, 0]),
                )

        if traits.counted and traits.averaged:
            # A cluster, as every launch of the program: see average_running.
            with T.Kernel(cluster, threads=1) as block2:
                if cluster > 1:
                    T.pdl_sync()
                C2 = T.make_tensor_from_addr(counter, (1,), "int64")
                if block2 == 0:
                    C2[0] = C2[0] + 1

    return columns.with_attr("global_symbol", "columns")
