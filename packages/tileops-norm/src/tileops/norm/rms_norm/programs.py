"""RMSNorm over the last axis of a contiguous matrix, as TileLang programs.

    y[m, j] = x[m, j] / sqrt(sum_j x[m, j]**2 / N + eps) * weight[j]

x, y: [M, N] of one dtype (float16, bfloat16, float32), M known at the launch, N when the program is
built. weight: [N], of x's dtype or float32, or absent. Sums, the scale and the product with the
weight are float32; the one rounding to x's dtype is at the store. NaN and infinities spread as in
``torch.nn.functional.rms_norm``: a row with a NaN is NaN, of a row with an infinity the infinite
elements are NaN and the finite ones zero.

Launched with ``(x, weight, y, m, eps)``, without ``weight`` where the program was built with none:
addresses as int64, m as int64 (at least 1), eps as float32. See ``tileops.core.tilelang_backend``
for that convention.

Every offset is computed in 64 bits. One row never spans blocks, so rows are independent of M.
The addresses carry no ``restrict``: within a chunk, weights are read before anything is stored,
because no load can be moved above a store that might alias it.
"""

from typing import Any

from .configs import (
    Name,
    OnChipConfig,
    RowConfig,
    StreamingConfig,
    choose_on_chip_config,
    choose_row_config,
    choose_streaming_config,
    select,
)
from .pieces import pieces

__all__ = [
    "Config",
    "Name",
    "choose_config",
    "program",
    "rms_norm",
    "rms_norm_on_chip",
    "rms_norm_streaming",
    "select",
]

Config = RowConfig | OnChipConfig | StreamingConfig


def choose_config(
    name: Name, n: int, dtype: str, weight_dtype: str | None, aligned: bool
) -> Config:
    """The layout of program ``name`` for rows of ``n``: what a build depends on besides dtypes."""
    return _CHOOSE[name](n, dtype, weight_dtype, aligned)


def program(name: Name, n: int, dtype: str, weight_dtype: str | None, config: Config) -> Any:
    """The ``PrimFunc`` of program ``name``."""
    return _MAKE[name](n, dtype, weight_dtype, config)


def rms_norm(n: int, dtype: str, weight_dtype: str | None, config: RowConfig) -> Any:
    """The row in registers; short rows share a block, and below a warp's width share a warp."""
    import tilelang.language as T

    lanes, rows, vector = config.threads_per_row, config.rows_per_block, config.vector
    accesses = config.accesses(n)
    weighted, early = weight_dtype is not None, config.weight_early
    scale_dtype = weight_dtype or dtype
    piece = pieces(n, dtype, weighted, lanes, rows, vector)

    @T.macro
    def body(x, weight, y, m, eps):
        with T.Kernel(T.ceildiv(m, rows), threads=lanes * rows) as block:
            X = T.make_tensor_from_addr(x, (m, n), dtype)
            Y = T.make_tensor_from_addr(y, (m, n), dtype)
            W = T.make_tensor_from_addr(weight, (n,), scale_dtype)
            held = T.alloc_local((accesses, vector), dtype)
            scale = T.alloc_local((accesses, vector), scale_dtype)
            total = T.alloc_local((1,), "float32")
            thread = T.get_thread_binding()
            lane = thread % lanes
            row = T.cast(block, "int64") * rows + thread // lanes

            piece.read_row(X, held, accesses, row, 0, lane, m)
            if early:
                piece.read_weight(W, scale, accesses, 0, lane)
            total[0] = 0.0
            piece.add_squares(held, accesses, total)
            piece.reciprocal_rms(total, thread, eps)
            if not early:
                piece.read_weight(W, scale, accesses, 0, lane)
            piece.write_row(Y, held, scale, accesses, total, row, 0, lane, m)

    return _entry("rms_norm", body, weighted)


def rms_norm_on_chip(n: int, dtype: str, weight_dtype: str | None, config: OnChipConfig) -> Any:
    """A row a block: the first part stays in registers, the rest in shared memory.

    Each thread reads back only what it stored, so shared memory needs no barrier of its own.
    """
    import tilelang.language as T

    threads, vector, unroll = config.threads, config.vector, config.unroll
    first, chunks = config.in_registers, config.in_shared // unroll
    weighted = weight_dtype is not None
    scale_dtype = weight_dtype or dtype
    piece = pieces(n, dtype, weighted, threads, 1, vector)

    @T.macro
    def body(x, weight, y, m, eps):
        with T.Kernel(m, threads=threads) as block:
            X = T.make_tensor_from_addr(x, (m, n), dtype)
            Y = T.make_tensor_from_addr(y, (m, n), dtype)
            W = T.make_tensor_from_addr(weight, (n,), scale_dtype)
            held = T.alloc_local((max(first, 1), vector), dtype)
            moving = T.alloc_local((unroll, vector), dtype)
            scale = T.alloc_local((unroll, vector), scale_dtype)
            total = T.alloc_local((1,), "float32")
            stash = T.alloc_shared((max(chunks, 1), unroll, threads, vector), dtype)
            thread = T.get_thread_binding()
            row = T.cast(block, "int64")

            piece.read_row(X, held, first, row, 0, thread, m)
            total[0] = 0.0
            for c in T.serial(chunks):
                piece.read_row(X, moving, unroll, row, first + c * unroll, thread, m)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        stash[c, u, thread, v] = moving[u, v]
                piece.add_squares(moving, unroll, total)
            piece.add_squares(held, first, total)
            piece.reciprocal_rms(total, thread, eps)
            for c in T.serial(chunks):
                piece.read_weight(W, scale, unroll, first + c * unroll, thread)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        moving[u, v] = stash[c, u, thread, v]
                piece.write_row(Y, moving, scale, unroll, total, row, first + c * unroll, thread, m)
            for c in T.unroll(first // unroll):
                piece.read_weight(W, scale, unroll, c * unroll, thread)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        moving[u, v] = held[c * unroll + u, v]
                piece.write_row(Y, moving, scale, unroll, total, row, c * unroll, thread, m)

    return _entry("rms_norm_on_chip", body, weighted)


def rms_norm_streaming(
    n: int, dtype: str, weight_dtype: str | None, config: StreamingConfig
) -> Any:
    """A row a block, of any width: one pass sums, a second, from the end, scales.

    The second pass goes backwards so that it starts with what the caches saw last.
    """
    import tilelang.language as T

    threads, vector, unroll = config.threads, config.vector, config.unroll
    chunks = -(-n // (threads * vector * unroll))
    weighted = weight_dtype is not None
    scale_dtype = weight_dtype or dtype
    piece = pieces(n, dtype, weighted, threads, 1, vector)

    @T.macro
    def body(x, weight, y, m, eps):
        with T.Kernel(m, threads=threads) as block:
            X = T.make_tensor_from_addr(x, (m, n), dtype)
            Y = T.make_tensor_from_addr(y, (m, n), dtype)
            W = T.make_tensor_from_addr(weight, (n,), scale_dtype)
            moving = T.alloc_local((unroll, vector), dtype)
            scale = T.alloc_local((unroll, vector), scale_dtype)
            total = T.alloc_local((1,), "float32")
            thread = T.get_thread_binding()
            row = T.cast(block, "int64")

            total[0] = 0.0
            for c in T.serial(chunks):
                piece.read_row(X, moving, unroll, row, c * unroll, thread, m)
                piece.add_squares(moving, unroll, total)
            piece.reciprocal_rms(total, thread, eps)
            for back in T.serial(chunks):
                start = (chunks - 1 - back) * unroll
                piece.read_row(X, moving, unroll, row, start, thread, m)
                piece.read_weight(W, scale, unroll, start, thread)
                piece.write_row(Y, moving, scale, unroll, total, row, start, thread, m)

    return _entry("rms_norm_streaming", body, weighted)


_CHOOSE = {
    "rms_norm": choose_row_config,
    "rms_norm_on_chip": choose_on_chip_config,
    "rms_norm_streaming": choose_streaming_config,
}
_MAKE = {
    "rms_norm": rms_norm,
    "rms_norm_on_chip": rms_norm_on_chip,
    "rms_norm_streaming": rms_norm_streaming,
}


def _entry(name: str, body: Any, weighted: bool) -> Any:
    """The ``PrimFunc`` around a body, with or without a weight's address among its parameters."""
    import tilelang.language as T

    if weighted:

        @T.prim_func
        def entry(x: T.int64, weight: T.int64, y: T.int64, m: T.int64, eps: T.float32):
            body(x, weight, y, m, eps)

    else:

        @T.prim_func
        def entry(x: T.int64, y: T.int64, m: T.int64, eps: T.float32):
            body(x, x, y, m, eps)

    return entry.with_attr("global_symbol", name)
