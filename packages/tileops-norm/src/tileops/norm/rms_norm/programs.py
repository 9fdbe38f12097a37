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

from collections.abc import Callable
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
    name: Name,
    n: int,
    dtype: str,
    weight_dtype: str | None,
    aligned: bool,
    arch: str = "sm_90a",
) -> Config:
    """The layout of program ``name`` for rows of ``n``: what a build depends on besides dtypes."""
    return _CHOOSE[name](n, dtype, weight_dtype, aligned, arch)


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
            partial = T.alloc_shared((1, rows, piece.warps), "float32")
            thread = T.get_thread_binding()
            lane = thread % lanes
            row = T.cast(block, "int64") * rows + thread // lanes

            piece.read_row(X, held, accesses, row, 0, lane, m)
            if early:
                piece.read_weight(W, scale, accesses, 0, lane)
            total[0] = 0.0
            piece.add_squares(held, accesses, total)
            piece.reciprocal_rms(total, partial, 0, thread, eps)
            if not early:
                piece.read_weight(W, scale, accesses, 0, lane)
            piece.write_row(Y, held, scale, accesses, total, row, 0, lane, m)

    return _entry("rms_norm", body, weighted)


def rms_norm_on_chip(n: int, dtype: str, weight_dtype: str | None, config: OnChipConfig) -> Any:
    """A row a block, read once: the first part stays in registers, the rest in shared memory.

    Each thread reads back only what it stored, so shared memory needs no barrier of its own.
    """
    # One block a row and plain loads, on purpose. It was predicted that blocks that stay, and ask
    # by cp.async for a piece of their next row as soon as they have written that piece of this
    # one, would win, since reads go on while writes do. They lost, where they were timed at their
    # best beside plain loads at theirs (bf16, µs, torch.add in brackets, runs as in configs.py):
    #   16384x32768: run 2 547.2 (502.4), plain run 1 516.0 (501.9)
    #   4096x65536:  run 2 275.9 (252.4), plain run 1 261.8 (251.5)
    #   8192x131072: run 2 1093 (1006.5), plain run 1 1081 (1000.8)
    # Nor was it the staying: in run 2 a block that took one row and left reached the same 547.2, so
    # the cost is in what all of them did, cp.async into shared memory and a sum that reads it back.
    # The weight in registers for all rows of a block lost too (16384x32768: 558.0 against 548.2),
    # and so did shorter rows (32768x8192: 275.4, in registers 261.6, torch.add 254.5). Rows that
    # are read twice are where fetching ahead won: see rms_norm_streaming.
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
            partial = T.alloc_shared((1, 1, piece.warps), "float32")
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
            piece.reciprocal_rms(total, partial, 0, thread, eps)
            for c in T.serial(chunks):
                piece.read_weight(W, scale, unroll, first + c * unroll, thread)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        moving[u, v] = stash[c, u, thread, v]
                piece.write_row(Y, moving, scale, unroll, total, row, first + c * unroll, thread, m)
            # The weight in groups here too: all of it at once would crowd the registers.
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
    """A row of any width: the first part is held in shared memory, the rest is read a second time.

    The second pass over the rest goes backwards, to start with what the caches saw last. A block
    takes every ``config.blocks``-th row, and as soon as it has written a held piece of one row it
    asks for the same piece of its next row, into the same place, so that reads go on while writes
    do. Each thread reads back only what it fetched itself, so the sum is all that the threads of a
    row have to agree on.
    """
    import tilelang.language as T

    threads, vector, unroll, blocks = config.threads, config.vector, config.unroll, config.blocks
    chunks = config.in_shared // unroll
    rest = config.streamed(n) // unroll
    weighted = weight_dtype is not None
    scale_dtype = weight_dtype or dtype
    piece = pieces(n, dtype, weighted, threads, 1, vector)

    @T.macro
    def body(x, weight, y, m, eps):
        with T.Kernel(T.min(m, blocks), threads=threads) as block:
            X = T.make_tensor_from_addr(x, (m, n), dtype)
            Y = T.make_tensor_from_addr(y, (m, n), dtype)
            W = T.make_tensor_from_addr(weight, (n,), scale_dtype)
            moving = T.alloc_local((unroll, vector), dtype)
            scale = T.alloc_local((unroll, vector), scale_dtype)
            total = T.alloc_local((1,), "float32")
            stash = T.alloc_shared((max(chunks, 1), unroll, threads, vector), dtype)
            partial = T.alloc_shared((2, 1, piece.warps), "float32")
            thread = T.get_thread_binding()
            start = T.cast(block, "int64")

            for c in T.serial(chunks):
                piece.fetch_row(X, stash, c, unroll, start, c * unroll, thread)
            T.ptx_commit_group()

            for turn in T.serial((m - start + (blocks - 1)) // blocks):
                row = start + turn * blocks
                following = row + blocks
                total[0] = 0.0
                for c in T.serial(rest):
                    piece.read_row(X, moving, unroll, row, (chunks + c) * unroll, thread, m)
                    piece.add_squares(moving, unroll, total)
                T.ptx_wait_group(0)
                for c in T.serial(chunks):
                    for u in T.unroll(unroll):
                        for v in T.vectorized(vector):
                            moving[u, v] = stash[c, u, thread, v]
                    piece.add_squares(moving, unroll, total)
                # Two rows of partial sums by turns: a warp may be a row ahead of another.
                piece.reciprocal_rms(total, partial, turn % 2, thread, eps)

                for c in T.serial(rest):
                    at = (chunks + rest - 1 - c) * unroll
                    piece.read_row(X, moving, unroll, row, at, thread, m)
                    piece.read_weight(W, scale, unroll, at, thread)
                    piece.write_row(Y, moving, scale, unroll, total, row, at, thread, m)
                for c in T.serial(chunks):
                    piece.read_weight(W, scale, unroll, c * unroll, thread)
                    for u in T.unroll(unroll):
                        for v in T.vectorized(vector):
                            moving[u, v] = stash[c, u, thread, v]
                    piece.write_row(Y, moving, scale, unroll, total, row, c * unroll, thread, m)
                    if following < m:
                        piece.fetch_row(X, stash, c, unroll, following, c * unroll, thread)
                T.ptx_commit_group()

    return _entry("rms_norm_streaming", body, weighted)


_CHOOSE: dict[str, Callable[..., Config]] = {
    "rms_norm": choose_row_config,
    "rms_norm_on_chip": choose_on_chip_config,
    "rms_norm_streaming": choose_streaming_config,
}
_MAKE: dict[str, Callable[..., Any]] = {
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
