"""The steps of the fused program, as TileLang macros.

A block's heads are numbered token first, then queries and keys; ``at`` is a head's number times its
lanes, plus the lane. A lane's part of a head is its *items*, ``vector`` pairs in two accesses each,
and its accesses to the rest; item n of lane l is number ``n * lanes + l``, and so for the rest.
"""

from types import SimpleNamespace
from typing import Any

from tileops.positional.rope.pieces import angle_pieces

from .configs import FusedConfig, FusedShape

__all__ = ["pieces"]


def pieces(shape: FusedShape, config: FusedConfig) -> Any:
    """Macros over one lane's part of a head."""
    import tilelang.language as T

    lanes, vector = config.lanes, config.vector
    items, rest = config.items(shape), config.rest(shape)
    all_items, all_rest = shape.pairs // vector, (shape.head_dim - shape.rotary_dim) // vector
    share = shape.normalized * lanes
    everything = config.tokens * share
    # Where an item's two accesses stand in a head, in accesses, and where the rest begins.
    stride, apart = (2, 1) if shape.interleaved else (1, all_items)
    start = shape.rotary_dim // vector
    dtype = shape.dtype
    parts = shape.head_dim // vector
    copied = max(shape.heads_v, 1) * parts
    angle = angle_pieces(
        pairs=shape.pairs,
        span=shape.pairs,
        tokens=config.tokens,
        threads=config.threads,
        positions_dtype=shape.positions,
        cache=shape.cache,
    )

    @T.macro
    def load(X, held, i, slot, row, head, access):
        for v in T.vectorized(vector):
            held[i, slot, v] = X[row, head, access, v]

    @T.macro
    def store(Y, held, i, slot, row, head, access):
        for v in T.vectorized(vector):
            Y[row, head, access, v] = held[i, slot, v]

    @T.macro
    def clear(held, i, slot):
        for v in T.vectorized(vector):
            held[i, slot, v] = T.cast(0, dtype)

    @T.macro
    def read(X, held, i, at, first, count):
        """held[i] = the lane's part of the head, zeros where there is none."""
        row, head, lane = first + at // share, at // lanes % shape.normalized, at % lanes
        there = at < everything and row < count
        for n in T.unroll(items):
            if there and n * lanes + lane < all_items:
                load(X, held, i, 2 * n, row, head, (n * lanes + lane) * stride)
                load(X, held, i, 2 * n + 1, row, head, (n * lanes + lane) * stride + apart)
            else:
                clear(held, i, 2 * n)
                clear(held, i, 2 * n + 1)
        for n in T.unroll(rest):
            if there and n * lanes + lane < all_rest:
                load(X, held, i, 2 * items + n, row, head, start + n * lanes + lane)
            else:
                clear(held, i, 2 * items + n)

    @T.macro
    def add_squares(total, held, i, slot):
        part = T.alloc_local((1,), "float32")
        part[0] = 0.0
        for v in T.unroll(vector):
            part[0] += T.cast(held[i, slot, v], "float32") * T.cast(held[i, slot, v], "float32")
        total[0] += part[0]

    @T.macro
    def reciprocal_rms(total, eps):
        """total = 1 / sqrt(mean of the head's squares + eps), from each lane's own sum."""
        for k in T.unroll(lanes.bit_length() - 1):
            total[0] += T.shfl_xor(total[0], 1 << k)
        total[0] = T.rsqrt(total[0] / shape.head_dim + eps)

    @T.macro
    def weigh(value, n, WQ, WK, held, i, slot, head, access, total):
        """value[n] = the access of held, normalized and scaled."""
        weight = T.alloc_local((vector,), shape.weight_dtype)
        if head < shape.heads_q:
            for v in T.vectorized(vector):
                weight[v] = WQ[access, v]
        else:
            for v in T.vectorized(vector):
                weight[v] = WK[access, v]
        for v in T.unroll(vector):
            value[n, v] = (
                T.cast(held[i, slot, v], "float32") * total[0] * T.cast(weight[v], "float32")
            )

    @T.macro
    def turn(held, i, slot, value, c, s):
        """held[i, slot] and the next = the pairs of both values, each turned by its angle."""
        for v in T.unroll(vector):
            if shape.interleaved:
                # Pair v is the numbers 2 v and 2 v + 1 of both accesses together.
                held[i, slot + 2 * v // vector, 2 * v % vector] = T.cast(
                    value[2 * v // vector, 2 * v % vector] * c[v]
                    - value[(2 * v + 1) // vector, (2 * v + 1) % vector] * s[v],
                    dtype,
                )
                held[i, slot + (2 * v + 1) // vector, (2 * v + 1) % vector] = T.cast(
                    value[(2 * v + 1) // vector, (2 * v + 1) % vector] * c[v]
                    + value[2 * v // vector, 2 * v % vector] * s[v],
                    dtype,
                )
            else:
                held[i, slot, v] = T.cast(value[0, v] * c[v] - value[1, v] * s[v], dtype)
                held[i, slot + 1, v] = T.cast(value[1, v] * c[v] + value[0, v] * s[v], dtype)

    @T.macro
    def finish_item(Y, WQ, WK, held, total, value, c, s, i, slot, row, head, item):
        """The item's place in the result = held, normalized and rotated."""
        weigh(value, 0, WQ, WK, held, i, slot, head, item * stride, total)
        weigh(value, 1, WQ, WK, held, i, slot + 1, head, item * stride + apart, total)
        turn(held, i, slot, value, c, s)
        store(Y, held, i, slot, row, head, item * stride)
        store(Y, held, i, slot + 1, row, head, item * stride + apart)

    @T.macro
    def finish_rest(Y, WQ, WK, held, total, value, i, slot, row, head, access):
        """The access's place in the result = held, normalized."""
        weigh(value, 0, WQ, WK, held, i, slot, head, access, total)
        for v in T.unroll(vector):
            held[i, slot, v] = T.cast(value[0, v], dtype)
        store(Y, held, i, slot, row, head, access)

    @T.macro
    def finish(Y, WQ, WK, held, total, cosines, sines, i, at, first, count, eps):
        """The head's place in the result = held[i], normalized and rotated."""
        row, head, lane = first + at // share, at // lanes % shape.normalized, at % lanes
        there = at < everything and row < count
        value = T.alloc_local((2, vector), "float32")
        c = T.alloc_local((vector,), "float32")
        s = T.alloc_local((vector,), "float32")
        total[0] = 0.0
        for n in T.unroll(2 * items + rest):
            add_squares(total, held, i, n)
        reciprocal_rms(total, eps)
        for n in T.unroll(items):
            if there and n * lanes + lane < all_items:
                for v in T.vectorized(vector):
                    c[v] = cosines[at // share, (n * lanes + lane) * vector + v]
                for v in T.vectorized(vector):
                    s[v] = sines[at // share, (n * lanes + lane) * vector + v]
                finish_item(
                    *(Y, WQ, WK, held, total, value, c, s),
                    *(i, 2 * n, row, head, n * lanes + lane),
                )
        for n in T.unroll(rest):
            if there and n * lanes + lane < all_rest:
                finish_rest(
                    *(Y, WQ, WK, held, total, value),
                    *(i, 2 * items + n, row, head, start + n * lanes + lane),
                )

    @T.macro
    def stream(X, Y, WQ, WK, held, total, positions, table, at, first, count, period, length, eps):
        """The head's place in the result, the head being read once for its sum and once more."""
        row, head, lane = first + at // share, at // lanes % shape.normalized, at % lanes
        there = at < everything and row < count
        value = T.alloc_local((2, vector), "float32")
        c = T.alloc_local((vector,), "float32")
        s = T.alloc_local((vector,), "float32")
        position = T.alloc_local((1,), "int64")
        found = T.alloc_local((2,), "float32")
        total[0] = 0.0
        for n in T.serial(items):
            if there and n * lanes + lane < all_items:
                load(X, held, 0, 0, row, head, (n * lanes + lane) * stride)
                load(X, held, 0, 1, row, head, (n * lanes + lane) * stride + apart)
                add_squares(total, held, 0, 0)
                add_squares(total, held, 0, 1)
        for n in T.serial(rest):
            if there and n * lanes + lane < all_rest:
                load(X, held, 0, 0, row, head, start + n * lanes + lane)
                add_squares(total, held, 0, 0)
        reciprocal_rms(total, eps)
        if there:
            angle.place_of(position, positions, table, row, 0, count, period)
        for n in T.serial(items):
            if there and n * lanes + lane < all_items:
                for v in T.unroll(vector):
                    angle.look_up(
                        *(found, table, position, (n * lanes + lane) * vector + v, length),
                        T.float32(1.0),
                    )
                    c[v] = found[0]
                    s[v] = found[1]
                load(X, held, 0, 0, row, head, (n * lanes + lane) * stride)
                load(X, held, 0, 1, row, head, (n * lanes + lane) * stride + apart)
                finish_item(
                    *(Y, WQ, WK, held, total, value, c, s),
                    *(0, 0, row, head, n * lanes + lane),
                )
        for n in T.serial(rest):
            if there and n * lanes + lane < all_rest:
                load(X, held, 0, 0, row, head, start + n * lanes + lane)
                finish_rest(
                    *(Y, WQ, WK, held, total, value),
                    *(0, 0, row, head, start + n * lanes + lane),
                )

    @T.macro
    def read_value(X, moving, c, at, first, count):
        """moving[c] = access ``at`` of the block to its tokens' values, where there is one."""
        row, head = first + at // copied, shape.normalized + at // parts % max(shape.heads_v, 1)
        if at < config.tokens * copied and row < count:
            load(X, moving, c, 0, row, head, at % parts)

    @T.macro
    def write_value(Y, moving, c, at, first, count):
        """The access's place in the result = moving[c]."""
        row, head = first + at // copied, shape.normalized + at // parts % max(shape.heads_v, 1)
        if at < config.tokens * copied and row < count:
            store(Y, moving, c, 0, row, head, at % parts)

    return SimpleNamespace(
        read=read,
        finish=finish,
        stream=stream,
        read_value=read_value,
        write_value=write_value,
        angles=angle.angles,
    )
