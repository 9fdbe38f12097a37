"""The steps that the RMSNorm programs share, as TileLang macros over one thread's registers.

A row is covered by *accesses*: access ``i`` of a thread is the ``vector`` elements that start at
``(i * lanes + lane) * vector``, so that the threads of a row touch neighbouring memory. An access
past the row's end reads zeros and writes nothing; where every access is inside the row, no guard
is emitted.
"""

from types import SimpleNamespace
from typing import Any

from .configs import ITEMSIZE


def pieces(n: int, dtype: str, weighted: bool, lanes: int, rows: int, vector: int) -> Any:
    """Macros for rows of ``n``, each held by ``lanes`` threads of a block of ``rows`` rows."""
    import tilelang.language as T

    warps = max(lanes // 32, 1)
    step = lanes * vector
    asynchronous = vector * ITEMSIZE[dtype] >= 4  # what cp.async copies: 4, 8 or 16 bytes

    def inside(first: Any, count: int) -> bool:
        """Whether accesses ``first`` to ``first + count`` of a row are known to be inside it."""
        return n % step == 0 and isinstance(first, int) and (first + count) * step <= n

    @T.macro
    def read_row(X, held, count, row, first, lane, m):
        """held[i] = access first + i of the row, zeros outside of it."""
        whole = inside(first, count)
        for i in T.unroll(count):
            if (rows == 1 or row < m) and (whole or ((first + i) * lanes + lane) * vector < n):
                for v in T.vectorized(vector):
                    held[i, v] = X[row, ((first + i) * lanes + lane) * vector + v]
            else:
                for v in T.vectorized(vector):
                    held[i, v] = T.cast(0, dtype)

    @T.macro
    def fetch_row(X, stash, c, count, row, first, lane):
        """stash[c, i, lane] = access first + i of the row, zeros outside of it.

        Asynchronous where ``cp.async`` takes the access's size; the caller commits and awaits. A
        thread may fetch into a place that it has read from before: it used the value already (the
        store of the result comes first), so the copy cannot overtake the read. ``cp.async`` is
        called by its template's name since ``T.ptx_cp_async`` refuses a buffer made of an address
        (TileLang 0.1.15: "tvm_access_ptr data argument must be a Var").
        """
        whole = inside(first, count)
        for i in T.unroll(count):
            if whole or ((first + i) * lanes + lane) * vector < n:
                if asynchronous:
                    T.call_extern(
                        "handle",
                        f"tl::cp_async_gs<{vector * ITEMSIZE[dtype]}>",
                        T.address_of(stash[c, i, lane, 0]),
                        T.address_of(X[row, ((first + i) * lanes + lane) * vector]),
                    )
                else:
                    for v in T.vectorized(vector):
                        stash[c, i, lane, v] = X[row, ((first + i) * lanes + lane) * vector + v]
            else:
                for v in T.vectorized(vector):
                    stash[c, i, lane, v] = T.cast(0, dtype)

    @T.macro
    def read_weight(W, scale, count, first, lane):
        """scale[i] = access first + i of the weight."""
        whole = inside(first, count)
        if weighted:
            for i in T.unroll(count):
                if whole or ((first + i) * lanes + lane) * vector < n:
                    for v in T.vectorized(vector):
                        scale[i, v] = W[((first + i) * lanes + lane) * vector + v]

    @T.macro
    def add_squares(held, count, total):
        """total += sum of held**2, one partial sum an access to shorten the chain of additions."""
        part = T.alloc_local((1,), "float32")
        for i in T.unroll(count):
            part[0] = 0.0
            for v in T.unroll(vector):
                part[0] += T.cast(held[i, v], "float32") * T.cast(held[i, v], "float32")
            total[0] += part[0]

    @T.macro
    def reciprocal_rms(total, partial, turn, thread, eps):
        """total = 1 / sqrt(mean of the row's squares + eps), from each thread's own sum.

        partial: [turns, rows, warps] in shared memory. The additions have the same order in every
        thread of a row, so all get the same bits.
        """
        for k in T.unroll(min(lanes, 32).bit_length() - 1):
            total[0] += T.shfl_xor(total[0], 1 << k)
        if warps > 1:
            if thread % 32 == 0:
                partial[turn, thread // lanes, thread % lanes // 32] = total[0]
            T.sync_threads()
            total[0] = 0.0
            for k in T.unroll(warps):
                total[0] += partial[turn, thread // lanes, k]
        total[0] = T.rsqrt(total[0] / n + eps)

    @T.macro
    def write_row(Y, held, scale, count, total, row, first, lane, m):
        """Access first + i of the row's output = held[i] * total * scale[i]."""
        whole = inside(first, count)
        out = T.alloc_local((vector,), dtype)
        for i in T.unroll(count):
            if (rows == 1 or row < m) and (whole or ((first + i) * lanes + lane) * vector < n):
                for v in T.unroll(vector):
                    if weighted:
                        out[v] = T.cast(
                            T.cast(held[i, v], "float32")
                            * total[0]
                            * T.cast(scale[i, v], "float32"),
                            dtype,
                        )
                    else:
                        out[v] = T.cast(T.cast(held[i, v], "float32") * total[0], dtype)
                for v in T.vectorized(vector):
                    Y[row, ((first + i) * lanes + lane) * vector + v] = out[v]

    return SimpleNamespace(
        warps=warps,
        fetch_row=fetch_row,
        read_row=read_row,
        read_weight=read_weight,
        add_squares=add_squares,
        reciprocal_rms=reciprocal_rms,
        write_row=write_row,
    )
