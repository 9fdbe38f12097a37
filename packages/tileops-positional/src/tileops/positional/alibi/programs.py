"""The ALiBi table as a TileLang program.

    bias[h, i, j] = -slope[h] * |i - j|

bias: [H, S, S] contiguous and on 16 bytes, of float16, bfloat16 or float32; H and S are known at
the launch. Slopes and products are float32, rounded once.

Launched with ``(bias, seq_len, total, accesses, across, blocks, power, step)``: the address; S, and
H * S, below 2**31; the accesses of a band, the blocks that these take, the blocks that the table
takes, and the greatest power of two up to H, all as int32; and -4 over that power as float32. See
``tileops.core.tilelang_backend`` for that convention.

The table is cut into bands of ``rows`` rows, a whole number of accesses each. A thread owns one
access of a band, and so the same columns in every band: from band to band only its row changes, and
now and then its head. What is divided is divided once a thread. An access may begin in one row and
end in the next; it never spans more, as ``choose_config`` sees to.

Rows and columns are exact in float32, as they are below 2**24: a longer table has over 2**49 bytes.
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
        """out = -(2 ** (step * k)) for the head's k-th step; see the reference."""
        at = T.if_then_else(head < power, 2 * head + 2, 2 * (head - power) + 1)
        out[0] = -T.exp2(T.cast(at, "float32") * step)

    @T.macro
    def values_of(value, slope, shift, i):
        """value = of the access that begins in row i of a head."""
        x = T.alloc_local((1,), "float32")
        x[0] = T.cast(i, "float32")
        for v in T.unroll(vector):
            value[v] = slope[0] * T.abs(x[0] + shift[v])

    @T.prim_func
    def entry(
        bias: T.int64,
        seq_len: T.int32,
        total: T.int32,
        accesses: T.int32,
        across: T.int32,
        blocks: T.int32,
        power: T.int32,
        step: T.float32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            elements = T.cast(total, "int64") * seq_len
            Y = T.make_tensor_from_addr(bias, (T.truncdiv(elements, vector), vector), dtype)
            Rest = T.make_tensor_from_addr(bias, (elements,), dtype)
            thread = T.get_thread_binding()
            slope = T.alloc_local((1,), "float32")
            after = T.alloc_local((1,), "float32")
            shift = T.alloc_local((vector,), "float32")
            value = T.alloc_local((vector,), "float32")
            out = T.alloc_local((vector,), dtype)
            i = T.alloc_local((1,), "int32")
            head = T.alloc_local((1,), "int32")
            at = T.alloc_local((1,), "int64")

            # Truncating, since a floor asks for the sign of a divisor that is known at the launch.
            group = T.truncdiv(block, across)
            access = (block - group * across) * threads + thread
            below = T.truncdiv(access * vector, seq_len) if rows > 1 else 0
            column = access * vector - below * seq_len
            band = group * bands
            row = band * rows + below
            head[0] = T.truncdiv(row, seq_len)
            i[0] = row - head[0] * seq_len
            # What runs on is stored whole; a store whose index is a sum may become four.
            at[0] = T.cast(band, "int64") * accesses + access
            slope_of(slope, head[0], power, step)
            # Of element v: its row's number minus its column's, less the row the access begins in.
            for v in T.unroll(vector):
                ends = T.if_then_else(column + v < seq_len, 0, seq_len + 1) if rows > 1 else 0
                shift[v] = T.cast(ends - (column + v), "float32")
            if access < accesses:
                for b in T.serial(T.min(bands, T.truncdiv(total - 1, rows) + 1 - band)):
                    values_of(value, slope, shift, i[0])
                    # The next row, in which an access may end, may be the next head's first.
                    if rows > 1 and i[0] + 1 == seq_len and column + vector > seq_len:
                        slope_of(after, head[0] + 1, power, step)
                        for v in T.unroll(vector):
                            if column + v >= seq_len:
                                value[v] = after[0] * T.cast(column + v - seq_len, "float32")
                    for v in T.vectorized(vector):
                        out[v] = T.cast(value[v], dtype)
                    if rows == 1 or band + b < T.truncdiv(total, rows):
                        for v in T.vectorized(vector):
                            Y[at[0], v] = out[v]
                    else:
                        for v in T.unroll(vector):
                            if at[0] * vector + v < elements:
                                Rest[at[0] * vector + v] = out[v]
                    at[0] += accesses
                    i[0] += rows
                    if i[0] >= seq_len:
                        i[0] -= seq_len
                        head[0] += 1
                        slope_of(slope, head[0], power, step)

    return entry.with_attr("global_symbol", "alibi")
