"""Wide rows, in registers, in shared memory or read again, as a TileLang program."""

from typing import Any

from tileops.core.errors import KernelBuildError
from tileops.norm.rows.configs import Build, WideConfig
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.programs.device import SOURCE
from tileops.norm.rows.programs.parts import parts
from tileops.norm.rows.programs.products import SOURCE as PRODUCTS

__all__ = ["wide_rows"]


def wide_rows(op: RowOp, build: Build, config: WideConfig) -> Any:
    """A row in one block, or in one cluster: part in registers, part in shared memory, or neither.

    What is in neither is read again for each further pass, from the caches where they still have
    it. Each thread reads back only what it stored itself, so shared memory needs no barrier
    of its own.

    Raises:
        KernelBuildError: what is read again is no whole number of steps.
    """
    import tilelang.language as T

    dtype = build.dtype
    threads, vector, unroll = config.threads, config.vector, config.unroll
    part = parts(op, build, config)
    move, summing = part.move, part.summing
    first, chunks = config.in_registers, config.in_shared // unroll
    rest = config.streamed(build.n) // unroll
    step = config.step or unroll
    if rest and unroll % step:
        raise KernelBuildError(
            f"{op.name}: of {unroll} accesses that are read together {step} are no part, by which "
            f"they are to be read again: {config}"
        )
    steps = rest * unroll // step
    # Accesses of the weight and its like that are read together.
    group = max(unroll, first) if summing is None else step
    # What stays in registers is not used before the rest was read, so that it may be on its way
    # all that time; but a sum is written at once, and what is added need not be kept.
    late = first > 0 and chunks + rest > 0 and not op.added

    # A quantized row is multiplied by the weight in both passes.
    columns_first = op.quantized and not config.early

    @T.macro
    def take(s, moving, count, i, at, measured):
        """moving = ``count`` accesses from i on, added up and written where there is a residual;
        and their columns, where they are ``measured`` next."""
        move.read_rows(moving, s.other, count, at, i)
        move.read_columns(s.gates, count, at, i)
        if columns_first and measured and count <= 2:
            move.read_columns(s.columns, count, at, i)
        move.add_rows(moving, s.other, s.gates, count, at, i)
        # More at a time would be one tensor too many for the registers of 1024 threads.
        if columns_first and measured and count > 2:
            move.read_columns(s.columns, count, at, i)

    @T.macro
    def begin_mean(s, moving, count, at, i):
        if summing is None:
            part.begin_mean(s, moving, count, at, i)

    @T.macro
    def measure(s, moving, count, at, i):
        """Add up what the row's statistics need of ``count`` accesses from i on."""
        if summing is not None:
            summing.add(s, moving, count)
        elif op.quantized:
            for k in move.counted(count):
                column_at = i + k if config.early else k
                part.quantized.measure(s, moving, k, column_at, 0, at, i + k)
        else:
            part.add(s, moving, count, at, i)

    @T.macro
    def measure_distances(s, moving, count, at, i):
        part.add(s, moving, count, at, i)

    def stashed() -> Any:
        """Parts of what is in shared memory; see again."""
        return tuple(range(chunks)) if op.quantized and config.early else T.serial(chunks)

    @T.macro
    def take_back(stash, c, moving, at):
        """moving = what was stored."""
        for u in T.unroll(unroll):
            for v in T.vectorized(vector):
                moving[u, v] = stash[c, u, at.thread, v]

    @T.macro
    def again(visit, s, held, moving, stash, at):
        """visit(s, some accesses, how many, at, the first of them), for all of the row."""
        for c in T.serial(steps):
            i = first + chunks * unroll + (steps - 1 - c if config.backwards else c) * step
            move.read_again(moving, step, at, i)
            visit(s, moving, step, at, i)
        if config.early:
            # Spelt out: the columns are in registers, which no number can choose from.
            for c in tuple(range(chunks)):
                take_back(stash, c, moving, at)
                visit(s, moving, unroll, at, c * unroll)
        else:
            for c in T.serial(chunks):
                take_back(stash, c, moving, at)
                visit(s, moving, unroll, at, first + c * unroll)
        if first > 0:
            visit(s, held, first, at, 0)

    @T.macro
    def write(s, moving, count, at, i):
        if not config.early:
            move.read_columns(s.columns, count, at, i)
        if op.quantized:
            for k in move.counted(count):
                part.quantized.write(s, moving, k, i + k if config.early else k, at, i + k)
        else:
            part.write(s, moving, count, at, i, i if config.early else 0)

    @T.macro
    def write_plainly(s, moving, count, at, i):
        for k in tuple(range(count)):
            if k % group == 0:
                move.read_columns(s.columns, min(group, count - k), at, i + k)
            summing.write(s, moving, k, k % group, at, i + k, build)

    @T.macro
    def write_exactly(s, moving, count, at, i):
        for k in tuple(range(count)):
            move.read_columns(s.columns, 1, at, i + k)
            part.normalize(s, moving, k, 0, 0)
            move.write_rows(s.values, 0, s.largest, at, i + k)

    @T.macro
    def finish(s, held, moving, stash, at):
        """Write the row, whose sums are known."""
        if not part.layer:  # noqa: SIM114 TileLang would evaluate both sides of an ``or``
            again(write_plainly, s, held, moving, stash, at)
        elif s.plain[0]:
            again(write_plainly, s, held, moving, stash, at)
        else:
            s.factor[0] = 0.0
            s.distance[0] = 0.0
            again(measure_distances, s, held, moving, stash, at)
            summing.join_exactly(s, at, at.a.eps)
            for k in tuple(range(first)):
                move.keep_narrow(held, k, dtype, s.factor[0])
            again(write_exactly, s, held, moving, stash, at)

    @T.macro
    def body(a):
        with T.Kernel(
            a.m * config.cluster,
            threads=threads,
            cluster_dims=part.cluster_dims,
            prelude=part.prelude + SOURCE + ("" if summing is None else PRODUCTS),
        ) as block:
            if part.waits:
                T.pdl_sync()  # see clusters.py
            if config.blocks_per_sm > 1:
                T.annotate_min_blocks_per_sm(config.blocks_per_sm)
            at = part.place(a, block, T.get_thread_binding())
            held = T.alloc_local((max(first, 1), vector), dtype)
            moving = T.alloc_local((unroll, vector), dtype)
            stash = T.alloc_shared((max(chunks, 1), unroll, threads, vector), dtype)
            s = part.state(chunks * unroll if config.early else group, 0, at, max(unroll, first))

            part.begin(s, at)
            if config.early:
                move.read_columns(s.columns, chunks * unroll, at, 0)
            if first > 0:
                take(s, held, first, 0, at, not late)
            if first > 0 and not late:
                begin_mean(s, held, first, at, 0)
                measure(s, held, first, at, 0)
            for c in stashed():
                take(s, moving, unroll, first + c * unroll, at, True)
                for u in T.unroll(unroll):
                    for v in T.vectorized(vector):
                        stash[c, u, at.thread, v] = moving[u, v]
                if first == 0 and c == 0:
                    begin_mean(s, moving, unroll, at, 0)
                if late and c == 0:
                    begin_mean(s, held, 1, at, 0)
                measure(s, moving, unroll, at, first + c * unroll)
            for c in T.serial(rest):
                take(s, moving, unroll, first + (chunks + c) * unroll, at, True)
                if first == 0 and chunks == 0 and c == 0:
                    begin_mean(s, moving, unroll, at, 0)
                if late and chunks == 0 and c == 0:
                    begin_mean(s, held, 1, at, 0)
                measure(s, moving, unroll, at, first + (chunks + c) * unroll)
            if late:
                if columns_first:
                    move.read_columns(s.columns, first, at, 0)
                measure(s, held, first, at, 0)
            if config.cluster > 1:
                T.call_extern("handle", "clusters::ready")
            if summing is None:
                part.end(s, at)
            else:
                summing.join(s, at, at.a.eps)
            if summing is not None:
                finish(s, held, moving, stash, at)
            elif op.quantized:
                part.quantized.find_greatest(s)
                if part.quantized.is_beyond(s):
                    part.quantized.compute_exactly(s, moving, at)
                else:
                    part.quantized.choose_factor(s, at)
                    again(write, s, held, moving, stash, at)
            else:
                again(write, s, held, moving, stash, at)

    return body
