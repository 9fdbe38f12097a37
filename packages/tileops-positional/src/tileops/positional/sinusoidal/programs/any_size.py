"""The sinusoidal table as a TileLang program, for any table.

    table[i, j] = sin(i * f[k] + (pi / 2 where column j is a cosine))

table: [S, E] contiguous and on 16 bytes, of float16, bfloat16 or float32; S and E are known at the
launch. Column j belongs to the frequency k = j // 2 and is a cosine where it is odd, or, where the
halves are apart, to k = j % (E / 2) and is a cosine in the second half. f is given as int64, in
2**-64 of a turn: see ``tileops.positional.angles``. Angles are integers, and exact; what sine and
cosine are computed by is in ``pieces``.

It is launched with ``(table, turns, seq_len, d_model, across, blocks)``: two addresses,
S and E as int64 (at least 1), the blocks that a row takes, and those that the table takes, both as
int32; see ``tileops.core.tilelang_backend`` for that convention. A thread owns frequencies, with
both of their columns, and goes down the rows, adding the frequencies to its angles.

Short tables have programs of their own: see ``short``.
"""

from typing import Any

from tileops.positional.sinusoidal.configs import SinusoidalConfig

__all__ = ["sinusoidal"]


def sinusoidal(dtype: str, interleaved: bool, config: SinusoidalConfig) -> Any:
    """The ``PrimFunc`` for tables of ``dtype``."""
    import tilelang.language as T

    from tileops.positional.sinusoidal.pieces import sine_and_cosine

    threads, vector, rows = config.threads, config.vector, config.rows
    pairs = vector // 2 if interleaved else vector
    values = sine_and_cosine(precise=dtype == "float32")

    @T.prim_func
    def entry(
        table: T.int64,
        turns: T.int64,
        seq_len: T.int64,
        d_model: T.int64,
        across: T.int32,
        blocks: T.int32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            accesses = T.truncdiv(d_model, vector)
            Y = T.make_tensor_from_addr(table, (seq_len * accesses, vector), dtype)
            F = T.make_tensor_from_addr(turns, (T.truncdiv(d_model, 2),), "uint64")
            angle = T.alloc_local((pairs,), "uint64")
            step = T.alloc_local((pairs,), "uint64")
            value = T.alloc_local((2 * pairs,), "float32")
            out = T.alloc_local((2 * pairs,), dtype)
            at = T.alloc_local((1,), "int64")
            thread = T.get_thread_binding()

            # Truncating, since a floor asks for the sign of a divisor that is known at the launch.
            group = T.truncdiv(block, across)
            mine = (block - group * across) * threads + thread
            first = T.cast(group, "int64") * rows
            # What runs on is stored whole; a store whose index is a sum may become four.
            at[0] = first * accesses + mine
            left = T.cast(T.min(T.int64(rows), seq_len - first), "int32")
            if T.cast(mine, "int64") * pairs < T.truncdiv(d_model, 2):
                for p in T.unroll(pairs):
                    step[p] = F[mine * pairs + p]
                    angle[p] = T.cast(first, "uint64") * step[p]
                for _ in T.unroll(left, unroll_factor=1):
                    for p in T.unroll(pairs):
                        upper = T.cast(T.shift_right(angle[p], T.uint64(32)), "uint32")
                        if interleaved:
                            values(value, 2 * p, 2 * p + 1, upper)
                        else:
                            values(value, p, pairs + p, upper)
                        angle[p] += step[p]
                    for v in T.vectorized(2 * pairs):
                        out[v] = T.cast(value[v], dtype)
                    for v in T.vectorized(vector):
                        Y[at[0], v] = out[v]
                    if not interleaved:
                        for v in T.vectorized(vector):
                            Y[at[0] + T.truncdiv(accesses, 2), v] = out[vector + v]
                    at[0] += accesses

    return entry.with_attr("global_symbol", "sinusoidal")
