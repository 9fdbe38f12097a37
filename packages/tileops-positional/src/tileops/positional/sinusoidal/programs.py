"""The sinusoidal table as a TileLang program.

    table[i, j] = sin(i * f[k] + (pi / 2 where column j is a cosine))

table: [S, E] contiguous and on 16 bytes, of float16, bfloat16 or float32; S and E are known at the
launch. Column j belongs to the frequency k = j // 2 and is a cosine where it is odd, or, where the
halves are apart, to k = j % (E / 2) and is a cosine in the second half. f is given as int64, in
2**-64 of a turn: see ``tileops.positional.angles``.

Launched with ``(table, turns, seq_len, d_model, across, blocks)``: two addresses, S and E as int64
(at least 1), the blocks that a row takes, and those that the table takes. See
``tileops.core.tilelang_backend`` for that convention.

A thread owns an access of a row and goes down the rows, adding the frequencies to its angles, which
is exact in integers. The sine of float32 is CUDA's ``sinpif`` (2 units in the last place); that of
the 16-bit dtypes the hardware's (an absolute error of 2**-21.4 within a turn, by the CUDA
programming guide), since the other would cost more than the stores do.
"""

import math
from typing import Any

from .configs import SinusoidalConfig

__all__ = ["sinusoidal"]


def sinusoidal(dtype: str, interleaved: bool, config: SinusoidalConfig) -> Any:
    """The ``PrimFunc`` for tables of ``dtype``."""
    import tilelang.language as T

    threads, vector, rows = config.threads, config.vector, config.rows
    quarter = T.uint64(1 << 62)

    @T.macro
    def sine(out, v, angle):
        """out[v] = sin of angle[v], in 2**-64 of a turn, of which the upper half is used."""
        half_turns = T.cast(
            T.reinterpret(T.cast(T.shift_right(angle[v], T.uint64(32)), "uint32"), "int32"),
            "float32",
        )
        if dtype == "float32":
            out[v] = T.call_extern("float32", "sinpif", half_turns * T.float32(2.0**-31))
        else:
            out[v] = T.cast(
                T.call_extern("float32", "__sinf", half_turns * T.float32(math.pi * 2.0**-31)),
                dtype,
            )

    @T.prim_func
    def entry(
        table: T.int64,
        turns: T.int64,
        seq_len: T.int64,
        d_model: T.int64,
        across: T.int64,
        blocks: T.int64,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            accesses = T.truncdiv(d_model, vector)
            Y = T.make_tensor_from_addr(table, (seq_len, accesses, vector), dtype)
            F = T.make_tensor_from_addr(turns, (T.truncdiv(d_model, 2),), "uint64")
            angle = T.alloc_local((vector,), "uint64")
            step = T.alloc_local((vector,), "uint64")
            out = T.alloc_local((vector,), dtype)
            thread = T.get_thread_binding()

            # Truncating, since a floor asks for the sign of a divisor that is known at the launch.
            group = T.truncdiv(T.cast(block, "int64"), across)
            access = (T.cast(block, "int64") - group * across) * threads + thread
            if access < accesses:
                for v in T.unroll(vector):
                    column = access * vector + v
                    if interleaved:
                        step[v] = F[T.truncdiv(column, 2)]
                        angle[v] = T.if_then_else(column % 2 == 1, quarter, T.uint64(0))
                    else:
                        second = column * 2 >= d_model
                        step[v] = F[T.if_then_else(second, column - T.truncdiv(d_model, 2), column)]
                        angle[v] = T.if_then_else(second, quarter, T.uint64(0))
                    angle[v] += T.cast(group * rows, "uint64") * step[v]
                for r in T.unroll(rows):
                    for v in T.unroll(vector):
                        sine(out, v, angle)
                        angle[v] += step[v]
                    if group * rows + r < seq_len:
                        for v in T.vectorized(vector):
                            Y[group * rows + r, access, v] = out[v]

    return entry.with_attr("global_symbol", "sinusoidal")
