"""Rows that are held in registers and shared memory, as a TileLang program."""

from typing import Any

from .configs import ITEMSIZE, HINTS, Build
from .device import SOURCE
from .ops import RowOp
from .parts import parts

__all__ = ["wide_rows"]


def wide_rows(op: RowOp, build: Build) -> Any:
    """A row in one block, or in one cluster of blocks: part in registers, part in shared memory.

    What fits neither is read again for each further pass. Each thread reads back only what it
    stored or fetched itself, so shared memory needs no barrier of its own, but where one thread
    fetches for all. The passes after the first go backwards, to start with what the caches saw
    last.
    """
    import tilelang.language as T

    config, dtype = build.config, build.dtype
    threads, vector, unroll = config.threads, config.vector, config.unroll
    part = parts(op, build)
    move = part.move
    first, chunks = config.in_registers, config.in_shared // unroll
    rest = config.streamed(build.n) // unroll
    hint = HINTS.index(config.load)
    bulk_bytes = config.in_shared * threads * vector * ITEMSIZE[dtype]

    @T.macro
    def stash_away(stash, c, moving, at):
        for u in T.unroll(unroll):
            for v in T.vectorized(vector):
                stash[c, u, at.thread, v] = moving[u, v]

    @T.macro
    def take(s, moving, i, at):
        """moving = accesses i to i + unroll, added up and written where there is a residual."""
        move.read_rows(moving, s.other, unroll, at, i)
        move.read_columns(s.gates, unroll, at, i)
        move.add_rows(moving, s.other, s.gates, unroll, at, i)

    @T.macro
    def fetch(stash, barrier, at):
        """Ask for all of the row that goes to shared memory, and wait."""
        if config.fetch == "bulk":
            if at.thread == 0:
                T.call_extern("handle", "rows::bulk_begin", T.address_of(barrier[0]))
            T.sync_threads()
            if at.thread == 0:
                size = T.min(
                    bulk_bytes, T.max(build.n - move.start(at, first), 0) * ITEMSIZE[dtype]
                )
                T.call_extern(
                    "handle",
                    f"rows::bulk_fetch<{hint}>",
                    T.address_of(stash[0, 0, 0, 0]),
                    move.address(at, first),
                    size,
                    T.address_of(barrier[0]),
                )
            T.call_extern("handle", "rows::bulk_await", T.address_of(barrier[0]))
        else:
            for c in T.serial(chunks):
                for u in T.unroll(unroll):
                    if move.inside(at, first + c * unroll + u):
                        T.call_extern(
                            "handle",
                            f"rows::fetch<{vector * ITEMSIZE[dtype]}>",
                            T.address_of(stash[c, u, at.thread, 0]),
                            move.address(at, first + c * unroll + u),
                        )
            T.call_extern("handle", "rows::await_fetched")

    @T.macro
    def take_back(stash, c, moving, at):
        """moving = what was stored, or fetched: zeros outside of the row."""
        for u in T.unroll(unroll):
            if config.fetch == "loads" or move.inside(at, first + c * unroll + u):
                for v in T.vectorized(vector):
                    moving[u, v] = stash[c, u, at.thread, v]
            else:
                for v in T.vectorized(vector):
                    moving[u, v] = T.cast(0, dtype)

    @T.macro
    def again(visit, s, held, moving, stash, at):
        """visit(s, some accesses, at, the first of them), for all of the row."""
        for c in T.serial(rest):
            back = first + (chunks + rest - 1 - c) * unroll
            move.read_again(moving, unroll, at, back)
            visit(s, moving, at, back)
        for c in T.serial(chunks):
            take_back(stash, c, moving, at)
            visit(s, moving, at, first + c * unroll)
        for c in tuple(range(first // unroll)):
            for u in T.unroll(unroll):
                for v in T.vectorized(vector):
                    moving[u, v] = held[c * unroll + u, v]
            visit(s, moving, at, c * unroll)

    @T.macro
    def add_distances(s, moving, at, i):
        part.add_distances(s, moving, unroll, at, i)

    @T.macro
    def find_largest(s, moving, at, i):
        move.read_columns(s.columns, unroll, at, i)
        part.find_largest(s, moving, unroll, at, i)

    @T.macro
    def write(s, moving, at, i):
        move.read_columns(s.columns, unroll, at, i)
        part.write(s, moving, unroll, at, i)

    @T.macro
    def body(a):
        with T.Kernel(
            a.m * config.cluster, threads=threads, cluster_dims=config.cluster, prelude=SOURCE
        ) as block:
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            at = part.place(a, block, T.get_thread_binding())
            held = T.alloc_local((max(first, 1), vector), dtype)
            moving = T.alloc_local((unroll, vector), dtype)
            stash = T.alloc_shared((max(chunks, 1), unroll, threads, vector), dtype)
            barrier = T.alloc_shared((1,), "uint64")
            s = part.state(unroll, at)

            if config.cluster > 1:
                # Awaited before anything is sent: by then every block of the cluster runs.
                T.call_extern("handle", "rows::cluster_arrive")
            part.begin(s)
            for c in tuple(range(first // unroll)):
                take(s, moving, c * unroll, at)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        held[c * unroll + u, v] = moving[u, v]
                part.add(s, moving, unroll)
            if config.fetch != "loads":
                fetch(stash, barrier, at)
            for c in T.serial(chunks):
                if config.fetch == "loads":
                    take(s, moving, first + c * unroll, at)
                    stash_away(stash, c, moving, at)
                else:
                    take_back(stash, c, moving, at)
                part.add(s, moving, unroll)
            for c in T.serial(rest):
                take(s, moving, first + (chunks + c) * unroll, at)
                part.add(s, moving, unroll)
            if part.layer:
                part.middle(s, at)
                again(add_distances, s, held, moving, stash, at)
            if config.cluster > 1:
                T.call_extern("handle", "rows::cluster_wait")
            part.end(s, at)
            if op.quantized:
                again(find_largest, s, held, moving, stash, at)
                part.choose_scale(s, at)
            again(write, s, held, moving, stash, at)

    return body
