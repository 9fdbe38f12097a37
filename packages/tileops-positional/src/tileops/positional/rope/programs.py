"""Rotary position embedding of queries and keys as one TileLang program.

    (a, b) -> (a cos t - b sin t, b cos t + a sin t)

for each pair of a head's first ``rotary_dim`` elements, its angle t being its token's position
times its frequency. q: [M, H, D], k: [M, Hkv, D], contiguous, M known at the launch. Arithmetic is
float32, with one rounding at the store. The results may be the inputs themselves: each thread
reads what it writes, before it does.

Launched with ``(q, k, q_out, k_out, positions, table, count, period, length, scale)``: addresses,
0 for those that the shape has no use for; M; the period of the position ids (token m has that of m
modulo it; where there are none, its position is m modulo it); the rows of the cache; all int64; and
what cosines and sines are multiplied by, as float32. See ``tileops.core.tilelang_backend`` for that
convention.

The table is the frequencies in 2**-64 of a turn (see ``tileops.positional.angles``). Where there
are sections, each frequency's row of the position ids follows, and these are [3, M]. Or it is the
cache, [length, rotary_dim], cosines and then sines, of which a position outside reads nothing, and
gets NaN.

A block works out its tokens' cosines and sines once, for all heads. Every offset into q and k is
computed in 64 bits.
"""

from typing import Any

from .configs import RotaryConfig, RotaryShape

__all__ = ["rope"]


def rope(shape: RotaryShape, config: RotaryConfig) -> Any:
    """The ``PrimFunc`` for heads of ``shape``."""
    import tilelang.language as T

    from .pieces import pieces

    dtype, threads, tokens = shape.dtype, config.threads, config.tokens
    vector, batch, span = config.vector, config.batch, config.span
    lanes = span // vector
    items = tokens * shape.heads * lanes
    rounds = -(-items // threads)
    rest, rest_batch = config.rest(shape), config.rest_batch
    rest_rounds = -(-tokens * shape.heads * rest // threads)
    piece = pieces(shape, config)

    @T.prim_func
    def entry(
        q: T.int64,
        k: T.int64,
        q_out: T.int64,
        k_out: T.int64,
        positions: T.int64,
        table: T.int64,
        count: T.int64,
        period: T.int64,
        length: T.int64,
        scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(count, tokens), config.blocks_across(shape), threads=threads) as (
            block,
            across,
        ):
            cosines = T.alloc_shared((tokens, span), "float32")
            sines = T.alloc_shared((tokens, span), "float32")
            held = T.alloc_local((batch, 2, vector), dtype)
            moving = T.alloc_local((max(rest_batch, 1), 1, config.rest_vector), dtype)
            thread = T.get_thread_binding()
            first = T.cast(block, "int64") * tokens

            # The first accesses are on their way while the angles are worked out.
            for i in T.unroll(batch):
                piece.read(q, k, held, i, i * threads + thread, first, across, count)
            for i in T.unroll(rest_batch):
                piece.read_rest(q, k, moving, i, i * threads + thread, first, across, count)
            piece.angles(
                cosines,
                sines,
                positions,
                table,
                first,
                across,
                thread,
                count,
                period,
                length,
                scale,
            )
            # What needs no angles is stored before all are there.
            for i in T.unroll(rest_batch):
                piece.write_rest(
                    q_out, k_out, moving, i, i * threads + thread, first, across, count
                )
            T.sync_threads()
            for i in T.unroll(batch):
                piece.write(
                    *(q_out, k_out, held, cosines, sines, i),
                    *(i * threads + thread, first, across, count),
                )
            for r in T.serial(-(-rounds // batch) - 1):
                for i in T.unroll(batch):
                    item = ((r + 1) * batch + i) * threads + thread
                    piece.read(q, k, held, i, item, first, across, count)
                for i in T.unroll(batch):
                    item = ((r + 1) * batch + i) * threads + thread
                    piece.write(q_out, k_out, held, cosines, sines, i, item, first, across, count)
            for r in T.serial(-(-rest_rounds // max(rest_batch, 1)) - 1):
                for i in T.unroll(rest_batch):
                    at = ((r + 1) * rest_batch + i) * threads + thread
                    piece.read_rest(q, k, moving, i, at, first, across, count)
                for i in T.unroll(rest_batch):
                    at = ((r + 1) * rest_batch + i) * threads + thread
                    piece.write_rest(q_out, k_out, moving, i, at, first, across, count)

    return entry.with_attr("global_symbol", "rope")
