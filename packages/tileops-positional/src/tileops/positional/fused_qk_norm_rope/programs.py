"""RMSNorm of each query and key head, and rotary embedding, as one TileLang program.

    x -> rope(x / sqrt(sum(x**2) / D + eps) * weight)

for each of a token's first Hq + Hk heads. qkv: [M, Hq + Hk + Hv, D], contiguous, M known at the
launch; weights: [D]. Arithmetic is float32, with one rounding at the store. The result may be qkv
itself, and else has the values copied: each thread reads what it writes, before it does.

Launched with ``(qkv, q_weight, k_weight, out, positions, table, count, period, length, eps)``:
addresses, 0 for those that the shape has no use for; M; the period of the position ids; the rows of
the cache; all int64; and eps as float32. Positions and table are as ``tileops.positional.rope`` has
them. See ``tileops.core.tilelang_backend`` for that convention.

A head belongs to a few lanes of one warp, which agree on its sum by shuffles; every lane takes part
in these, whether it has a head or not. Every offset into qkv is computed in 64 bits.
"""

from typing import Any

from .configs import FusedConfig, FusedShape

__all__ = ["fused_qk_norm_rope"]

#: Accesses to the values that a thread has on their way beside its first heads, at most.
_EARLY = 4


def fused_qk_norm_rope(shape: FusedShape, config: FusedConfig) -> Any:
    """The ``PrimFunc`` for heads of ``shape``."""
    import tilelang.language as T

    from .pieces import pieces

    threads, tokens, lanes = config.threads, config.tokens, config.lanes
    batch, vector = config.batch, config.vector
    share = shape.normalized * lanes  # threads that a token takes
    groups = -(-tokens * share // (threads * batch))
    slots = 2 * config.items(shape) + config.rest(shape) if config.held else 2
    heads = shape.normalized + shape.heads_v
    parts = (heads, shape.head_dim // vector, vector)
    copied = shape.heads_v * (shape.head_dim // vector) if not shape.inplace else 0
    copy_rounds = -(-tokens * copied // threads)
    early = min(copy_rounds, _EARLY) if config.held else 0
    piece = pieces(shape, config)

    @T.prim_func
    def entry(
        qkv: T.int64,
        q_weight: T.int64,
        k_weight: T.int64,
        out: T.int64,
        positions: T.int64,
        table: T.int64,
        count: T.int64,
        period: T.int64,
        length: T.int64,
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(count, tokens), threads=threads) as block:
            X = T.make_tensor_from_addr(qkv, (count, *parts), shape.dtype)
            Y = T.make_tensor_from_addr(out, (count, *parts), shape.dtype)
            WQ = T.make_tensor_from_addr(q_weight, parts[1:], shape.weight_dtype)
            WK = T.make_tensor_from_addr(k_weight, parts[1:], shape.weight_dtype)
            held = T.alloc_local((batch, slots, vector), shape.dtype)
            moving = T.alloc_local((max(early, 1), 1, vector), shape.dtype)
            total = T.alloc_local((1,), "float32")
            thread = T.get_thread_binding()
            first = T.cast(block, "int64") * tokens

            if config.held:
                cosines = T.alloc_shared((tokens, shape.pairs), "float32")
                sines = T.alloc_shared((tokens, shape.pairs), "float32")
                # The first heads are on their way while the angles are worked out.
                for i in T.unroll(batch):
                    piece.read(X, held, i, i * threads + thread, first, count)
                for c in T.unroll(early):
                    piece.read_value(X, moving, c, c * threads + thread, first, count)
                piece.angles(
                    *(cosines, sines, positions, table),
                    *(first, 0, thread, count, period, length, T.float32(1.0)),
                )
                # What needs no angles is stored before all are there.
                for c in T.unroll(early):
                    piece.write_value(Y, moving, c, c * threads + thread, first, count)
                T.sync_threads()
                for i in T.unroll(batch):
                    piece.finish(
                        *(Y, WQ, WK, held, total, cosines, sines),
                        *(i, i * threads + thread, first, count, eps),
                    )
                for g in T.serial(groups - 1):
                    for i in T.unroll(batch):
                        at = ((g + 1) * batch + i) * threads + thread
                        piece.read(X, held, i, at, first, count)
                    for i in T.unroll(batch):
                        at = ((g + 1) * batch + i) * threads + thread
                        piece.finish(
                            *(Y, WQ, WK, held, total, cosines, sines),
                            *(i, at, first, count, eps),
                        )
            else:
                for g in T.serial(groups):
                    piece.stream(
                        *(X, Y, WQ, WK, held, total, positions, table),
                        *(g * threads + thread, first, count, period, length, eps),
                    )
            for c in T.serial(copy_rounds - early):
                at = (early + c) * threads + thread
                piece.read_value(X, moving, 0, at, first, count)
                piece.write_value(Y, moving, 0, at, first, count)

    return entry.with_attr("global_symbol", "fused_qk_norm_rope")
