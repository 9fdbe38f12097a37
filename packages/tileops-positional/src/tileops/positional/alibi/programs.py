"""The ALiBi table as a TileLang program.

    bias[h, i, j] = -slope[h] * |i - j|

bias: [H, S, S] contiguous and on 16 bytes, of float16, bfloat16 or float32; H and S are known at
the launch. Slopes and products are float32, rounded once.

Launched with ``(bias, heads, seq_len, accesses, across, blocks, power, step)``: the address, H and
S as int64 (at least 1, and H * S below 2**31), the accesses of a band, the blocks that these take,
the blocks that the table takes, the greatest power of two up to H as int32, and -4 over it as
float32. See ``tileops.core.tilelang_backend`` for that convention.

The table is cut into bands of ``rows`` rows, a whole number of accesses each. A thread owns one
access of a band, and so the same columns in every band: of what it writes only the row changes from
band to band, and with it the head. An access may begin in one row and end in the next; it never
spans more, as ``choose_config`` sees to.
"""

from typing import Any

from .configs import AlibiConfig

__all__ = ["alibi"]


def alibi(dtype: str, config: AlibiConfig) -> Any:
    """The ``PrimFunc`` for tables of ``dtype``."""
    import tilelang.language as T

    threads, vector, rows, bands = config.threads, config.vector, config.rows, config.bands

    @T.macro
    def slope_of(out, head, power, step):
        """out = 2 ** (step * k) for the head's k-th step; see the reference."""
        at = T.if_then_else(head < power, 2 * head + 2, 2 * (head - power) + 1)
        out[0] = -T.exp2(T.cast(at, "float32") * step)

    @T.prim_func
    def entry(
        bias: T.int64,
        heads: T.int64,
        seq_len: T.int64,
        accesses: T.int64,
        across: T.int64,
        blocks: T.int64,
        power: T.int32,
        step: T.float32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            elements = heads * seq_len * seq_len
            whole = T.truncdiv(elements, vector)
            Y = T.make_tensor_from_addr(bias, (whole, vector), dtype)
            Rest = T.make_tensor_from_addr(bias, (elements,), dtype)
            thread = T.get_thread_binding()
            slope = T.alloc_local((1,), "float32")
            after = T.alloc_local((1,), "float32")
            shift = T.alloc_local((vector,), "float32")
            out = T.alloc_local((vector,), dtype)

            # Truncating, since a floor asks for the sign of a divisor that is known at the launch.
            group = T.truncdiv(T.cast(block, "int64"), across)
            access = (T.cast(block, "int64") - group * across) * threads + thread
            below = T.cast(T.truncdiv(access * vector, seq_len), "int32")
            column = T.cast(T.truncmod(access * vector, seq_len), "int32")
            length = T.cast(seq_len, "int32")
            # Of element v: its row's number minus its column's, less the row the access begins in.
            for v in T.unroll(vector):
                shift[v] = T.cast(
                    T.if_then_else(column + v < length, -(column + v), length + 1 - (column + v)),
                    "float32",
                )
            for b in T.unroll(bands):
                at = (group * bands + b) * accesses + access
                if access < accesses and at * vector < elements:
                    row = T.cast((group * bands + b) * rows, "int32") + below
                    head = T.truncdiv(row, length)
                    i = row - head * length
                    slope_of(slope, head, power, step)
                    if rows == 1:
                        for v in T.unroll(vector):
                            out[v] = T.cast(
                                slope[0] * T.abs(T.cast(i, "float32") + shift[v]), dtype
                            )
                    else:
                        # The next row, in which an access may end, may be the next head's first.
                        last = i + 1 == length
                        slope_of(after, T.if_then_else(last, head + 1, head), power, step)
                        for v in T.unroll(vector):
                            away = T.if_then_else(
                                last and column + v >= length,
                                T.cast(length - (column + v), "float32"),
                                T.cast(i, "float32") + shift[v],
                            )
                            its = T.if_then_else(column + v >= length, after[0], slope[0])
                            out[v] = T.cast(its * T.abs(away), dtype)
                    if at < whole:
                        for v in T.vectorized(vector):
                            Y[at, v] = out[v]
                    else:
                        for v in T.unroll(vector):
                            if at * vector + v < elements:
                                Rest[at * vector + v] = out[v]

    return entry.with_attr("global_symbol", "alibi")
