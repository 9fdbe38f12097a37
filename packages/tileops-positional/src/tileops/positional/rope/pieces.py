"""The steps of the rotary programs, as TileLang macros.

An *item* is ``vector`` pairs of one head, in two accesses: to the first and to the second half, or
to neighbours. Items are numbered within a block: token first, then head (queries, then keys), then
place in the head.
"""

from types import SimpleNamespace
from typing import Any

from .configs import RotaryConfig, RotaryShape

__all__ = ["angle_pieces", "pieces"]


def angle_pieces(
    *,
    pairs: int,
    span: int,
    tokens: int,
    threads: int,
    positions_dtype: str | None,
    cache: str | None,
    sectioned: bool = False,
) -> Any:
    """Macros that find positions and their angles; a block has ``span`` pairs of ``tokens``."""
    import tilelang.language as T

    # Here, because in a macro `or` is an operator of the program.
    ids_dtype, cache_dtype = positions_dtype or "int64", cache or "float32"
    ids_rows = 3 if sectioned else 1

    @T.macro
    def place_of(position, positions, table, token, pair, count, period):
        """position[0] = where the token stands, for this pair."""
        IDS = T.make_tensor_from_addr(positions, (ids_rows * period,), ids_dtype)
        F = T.make_tensor_from_addr(table, (2, pairs), "uint64")
        # Truncating, since a floor asks for the sign of what is known at the launch.
        if sectioned:
            position[0] = T.cast(IDS[T.cast(F[1, pair], "int64") * count + token], "int64")
        elif positions_dtype is not None:
            position[0] = T.cast(IDS[T.truncmod(token, period)], "int64")
        else:
            position[0] = T.truncmod(token, period)

    @T.macro
    def look_up(found, table, position, pair, length, scale):
        """found[0], found[1] = cosine and sine of the pair there, times scale."""
        C = T.make_tensor_from_addr(table, (length, 2, pairs), cache_dtype)
        F = T.make_tensor_from_addr(table, (2, pairs), "uint64")
        if cache is not None:
            if position[0] >= 0 and position[0] < length:
                found[0] = scale * T.cast(C[position[0], 0, pair], "float32")
                found[1] = scale * T.cast(C[position[0], 1, pair], "float32")
            else:
                found[0] = T.float32(float("nan"))
                found[1] = T.float32(float("nan"))
        else:
            turn = T.cast(position[0], "uint64") * F[0, pair]
            upper = T.cast(T.shift_right(turn, T.uint64(32)), "uint32")
            half_turns = T.cast(T.reinterpret(upper, "int32"), "float32") * T.float32(2.0**-31)
            found[0] = scale * T.call_extern("float32", "cospif", half_turns)
            found[1] = scale * T.call_extern("float32", "sinpif", half_turns)

    @T.macro
    def angles(
        cosines, sines, positions, table, first, across, thread, count, period, length, scale
    ):
        """cosines, sines = of the block's tokens and pairs, times scale."""
        position = T.alloc_local((1,), "int64")
        found = T.alloc_local((2,), "float32")
        for a in T.serial(-(-tokens * span // threads)):
            at = a * threads + thread
            token = first + at // span
            pair = across * span + at % span
            if at < tokens * span and token < count and pair < pairs:
                place_of(position, positions, table, token, pair, count, period)
                look_up(found, table, position, pair, length, scale)
                cosines[at // span, at % span] = found[0]
                sines[at // span, at % span] = found[1]

    return SimpleNamespace(place_of=place_of, look_up=look_up, angles=angles)


def pieces(shape: RotaryShape, config: RotaryConfig) -> Any:
    """Macros that read and write items, and what is not rotated."""
    import tilelang.language as T

    vector, span, tokens = config.vector, config.span, config.tokens
    lanes = span // vector
    items = tokens * shape.heads * lanes
    whole = shape.pairs % span == 0
    # Where an item's two accesses stand in a head, in accesses.
    stride, apart = (2, 1) if shape.interleaved else (1, shape.pairs // vector)
    width, rest = config.rest_vector, max(config.rest(shape), 1)
    copies = tokens * shape.heads * rest
    start = shape.rotary_dim // width

    def parts(size: int) -> int:
        """Accesses of a head."""
        return shape.head_dim // size

    @T.macro
    def load(q, k, held, i, n, row, head, access, size, count):
        """held[i, n] = that access of a head."""
        Q = T.make_tensor_from_addr(q, (count * shape.heads_q * parts(size), size), shape.dtype)
        K = T.make_tensor_from_addr(k, (count * shape.heads_k * parts(size), size), shape.dtype)
        at = T.alloc_local((1,), "int64")
        if shape.heads_k == 0 or head < shape.heads_q:
            at[0] = (row * shape.heads_q + head) * parts(size) + access
            for v in T.vectorized(size):
                held[i, n, v] = Q[at[0], v]
        else:
            at[0] = (row * shape.heads_k + (head - shape.heads_q)) * parts(size) + access
            for v in T.vectorized(size):
                held[i, n, v] = K[at[0], v]

    @T.macro
    def store(q, k, held, i, n, row, head, access, size, count):
        """That access of a head = held[i, n]. At a number of its own: a store at an index that is
        a sum may become four.
        """
        Q = T.make_tensor_from_addr(q, (count * shape.heads_q * parts(size), size), shape.dtype)
        K = T.make_tensor_from_addr(k, (count * shape.heads_k * parts(size), size), shape.dtype)
        at = T.alloc_local((1,), "int64")
        if shape.heads_k == 0 or head < shape.heads_q:
            at[0] = (row * shape.heads_q + head) * parts(size) + access
            for v in T.vectorized(size):
                Q[at[0], v] = held[i, n, v]
        else:
            at[0] = (row * shape.heads_k + (head - shape.heads_q)) * parts(size) + access
            for v in T.vectorized(size):
                K[at[0], v] = held[i, n, v]

    @T.macro
    def read(q, k, held, i, item, first, across, count):
        """held[i] = both accesses of the item, where there is one."""
        row = first + item // (shape.heads * lanes)
        head = item // lanes % shape.heads
        lane = across * lanes + item % lanes
        if item < items and row < count and (whole or lane < shape.pairs // vector):
            load(q, k, held, i, 0, row, head, lane * stride, vector, count)
            load(q, k, held, i, 1, row, head, lane * stride + apart, vector, count)

    @T.macro
    def turn(held, cosines, sines, i, token, lane):
        """held[i] = its pairs, each turned by its angle."""
        c = T.alloc_local((vector,), "float32")
        s = T.alloc_local((vector,), "float32")
        for v in T.vectorized(vector):
            c[v] = cosines[token, lane * vector + v]
        for v in T.vectorized(vector):
            s[v] = sines[token, lane * vector + v]
        a = T.alloc_local((1,), "float32")
        b = T.alloc_local((1,), "float32")
        for v in T.unroll(vector):
            # Pair v of neighbours is elements 2 v and 2 v + 1 of both accesses together.
            if shape.interleaved:
                a[0] = T.cast(held[i, 2 * v // vector, 2 * v % vector], "float32")
                b[0] = T.cast(held[i, (2 * v + 1) // vector, (2 * v + 1) % vector], "float32")
                held[i, 2 * v // vector, 2 * v % vector] = T.cast(
                    a[0] * c[v] - b[0] * s[v], shape.dtype
                )
                held[i, (2 * v + 1) // vector, (2 * v + 1) % vector] = T.cast(
                    b[0] * c[v] + a[0] * s[v], shape.dtype
                )
            else:
                a[0] = T.cast(held[i, 0, v], "float32")
                b[0] = T.cast(held[i, 1, v], "float32")
                held[i, 0, v] = T.cast(a[0] * c[v] - b[0] * s[v], shape.dtype)
                held[i, 1, v] = T.cast(b[0] * c[v] + a[0] * s[v], shape.dtype)

    @T.macro
    def write(q_out, k_out, held, cosines, sines, i, item, first, across, count):
        """The item's place in the result = held[i], rotated."""
        row = first + item // (shape.heads * lanes)
        head = item // lanes % shape.heads
        lane = across * lanes + item % lanes
        if item < items and row < count and (whole or lane < shape.pairs // vector):
            turn(held, cosines, sines, i, item // (shape.heads * lanes), item % lanes)
            store(q_out, k_out, held, i, 0, row, head, lane * stride, vector, count)
            store(q_out, k_out, held, i, 1, row, head, lane * stride + apart, vector, count)

    @T.macro
    def read_rest(q, k, moving, i, at, first, across, count):
        """moving[i] = access ``at`` of the block to what is not rotated, where there is one."""
        row = first + at // (shape.heads * rest)
        if at < copies and row < count and across == 0:
            head = at // rest % shape.heads
            load(q, k, moving, i, 0, row, head, start + at % rest, width, count)

    @T.macro
    def write_rest(q_out, k_out, moving, i, at, first, across, count):
        """The access's place in the result = moving[i]."""
        row = first + at // (shape.heads * rest)
        if at < copies and row < count and across == 0:
            head = at // rest % shape.heads
            store(q_out, k_out, moving, i, 0, row, head, start + at % rest, width, count)

    return SimpleNamespace(
        read=read,
        write=write,
        read_rest=read_rest,
        write_rest=write_rest,
        angles=angle_pieces(
            pairs=shape.pairs,
            span=span,
            tokens=tokens,
            threads=config.threads,
            positions_dtype=shape.positions,
            cache=shape.cache,
            sectioned=shape.sectioned,
        ).angles,
    )
