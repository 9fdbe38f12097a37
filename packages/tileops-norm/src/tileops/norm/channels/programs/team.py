"""A unit in the shared memory of a team of blocks, all of which run at once: read once."""

from typing import Any

from tileops.norm.channels.layouts import TeamLayout
from tileops.norm.channels.pieces import FREE, PRELUDE, pieces
from tileops.norm.channels.programs.running import average_running
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "team"]

#: The parameters of the program, in order.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var", "counter", "workspace"),
    *("units", "size", "inner", "stride", "pitch", "groups", "per", "magic", "shift"),
    *("teams", "members", "part", "elements", "eps", "momentum"),
)


def team(traits: Traits, layout: TeamLayout) -> Any:
    """Units of up to what the multiprocessors hold together.

    Each of ``teams`` teams of ``members`` blocks takes every ``teams``-th unit, each block its part
    of it. A block holds the parts of ``depth`` units in turn: it adds up one, tells its team, then
    normalizes the one before, whose other parts have been told by then, and asks for the next part
    where it has just written one. A thread reads back only what it fetched itself.

    A block waits for its team, so all blocks must run: the launch is a cooperative one, which
    ``sync_grid`` makes it. ``workspace`` has a slot for each part of each unit. The blocks free the
    slots before that barrier, behind which nobody waits for a slot that still holds old numbers.
    """
    import tilelang.language as T

    threads, vector, depth = layout.threads, layout.vector, layout.depth
    chunks, unroll = layout.chunks, layout.unroll
    dtype, mode = traits.dtype, traits.mode
    affine_dtype, running = traits.affine or dtype, traits.running
    piece = pieces(traits, vector, layout.straddle)
    warps, chunk = threads // 32, threads * unroll
    lag = 1 if depth > 1 else 0
    counts_at_once = traits.counted and not traits.averaged

    @T.prim_func
    def team(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        counter: T.int64,
        workspace: T.int64,
        units: T.int32,
        size: T.int32,
        inner: T.int32,
        stride: T.int64,
        pitch: T.int64,
        groups: T.int64,
        per: T.int32,
        magic: T.int64,
        shift: T.int32,
        teams: T.int32,
        members: T.int32,
        part: T.int32,
        elements: T.float32,
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(teams * members, threads=threads, prelude=PRELUDE) as block:
            X = T.make_tensor_from_addr(x, (pitch, vector), dtype)
            Y = T.make_tensor_from_addr(y, (pitch, vector), dtype)
            W = T.make_tensor_from_addr(weight, (groups,), affine_dtype)
            B = T.make_tensor_from_addr(bias, (groups,), affine_dtype)
            slots = T.make_tensor_from_addr(workspace, (units * members,), "int64")
            stash = T.alloc_shared((depth, chunks, unroll, threads, vector), dtype)
            partial = T.alloc_shared((4, 3, 1, warps), "float32")
            moving = T.alloc_local((unroll, vector), dtype)
            state = T.alloc_local((3,), "float32")
            told = T.alloc_local((2,), "float32")
            scale = T.alloc_local((unroll,), "float32")
            offset = T.alloc_local((unroll,), "float32")
            reciprocal = T.alloc_local((1,), "float32")
            thread = T.get_thread_binding()
            # Kept in registers of their own: TileLang would write the divisions out at each use.
            kept = T.alloc_local((5,), "int32")
            kept[0] = T.cast(T.cast(block, "uint32") // T.cast(members, "uint32"), "int32")
            kept[1] = T.cast(block, "int32") - kept[0] * members
            kept[2] = kept[1] * part
            kept[3] = T.min(kept[2] + part, size)
            kept[4] = T.cast(
                T.cast(units - kept[0] + (teams - 1), "uint32") // T.cast(teams, "uint32"), "int32"
            )
            crew = kept[0]
            rank = kept[1]
            start = kept[2]
            end = kept[3]
            mine = kept[4]

            for d in T.unroll(depth):
                for c in T.serial(chunks):
                    if crew + d * teams < units:
                        piece.fetch(
                            *(X, stash, d, c, unroll, T.cast(crew + d * teams, "int64") * pitch),
                            *(start + c * chunk + thread, threads, end, thread),
                            *(inner, stride, magic, shift),
                        )
                T.ptx_commit_group()
            # A team frees its own.
            for k in T.serial(mine):
                if thread == 0:
                    slots[(crew + k * teams) * members + rank] = T.cast(FREE, "int64")
            T.sync_grid()

            for turn in T.serial(mine + lag):
                # Four rows of partial sums in turn: a warp may be ahead of another, and no two
                # sums that follow each other may share a row.
                row = turn % 2 * 2
                if turn < mine:
                    if turn == 0:
                        T.ptx_wait_group(depth - 1)
                    else:
                        T.ptx_wait_group(max(depth - 2, 0))
                    piece.clear(state)
                    for c in T.serial(chunks):
                        piece.recall(stash, turn % depth, c, unroll, moving, thread)
                        piece.accumulate(
                            *(moving, unroll, start + c * chunk + thread, threads, end),
                            *(state, False),
                        )
                    piece.settle(state, partial, row, thread, threads, 1, 0)
                    if thread == 0:
                        T.call_extern(
                            "handle",
                            "tileops::publish",
                            T.address_of(slots[(crew + turn * teams) * members + rank]),
                            *(state[1], state[2]),
                        )
                if turn >= lag:
                    before = turn - lag
                    unit = crew + before * teams
                    base = T.cast(unit, "int64") * pitch
                    first = piece.first_channel(unit, groups, per)
                    piece.clear(state)
                    if thread < members:
                        T.call_extern(
                            "handle",
                            "tileops::await",
                            T.address_of(slots[unit * members + thread]),
                            *(T.address_of(told[0]), T.address_of(told[1])),
                        )
                        state[0] = T.cast(T.min(part, size - thread * part), "float32") * vector
                        state[1] = told[0]
                        state[2] = told[1]
                    if mode != "group":
                        piece.affine(W, B, scale, offset, 0, first, 0, inner, magic, shift)
                    piece.settle(state, partial, row + 1, thread, threads, 1, 0)
                    reciprocal[0] = T.rsqrt(state[2] / elements + eps)

                    if running and rank == 0 and thread == 0:
                        if mode == "batch":
                            RM = T.make_tensor_from_addr(running_mean, (groups,), running)
                            RV = T.make_tensor_from_addr(running_var, (groups,), running)
                            factor = T.alloc_local((1,), "float32")
                            factor[0] = momentum
                            if traits.averaged:
                                C = T.make_tensor_from_addr(counter, (1,), "int64")
                                factor[0] = 1.0 / T.cast(C[0] + 1, "float32")
                            piece.track(RM, unit, state[1], factor[0])
                            piece.track(RV, unit, state[2] / (elements - 1.0), factor[0])
                        else:
                            U = T.make_tensor_from_addr(
                                workspace + T.cast(units, "int64") * members * 8,
                                *((2, units), "float32"),
                            )
                            U[0, unit] = state[1]
                            U[1, unit] = state[2] / (elements - 1.0)

                    for c in T.serial(chunks):
                        piece.recall(stash, before % depth, c, unroll, moving, thread)
                        for i in T.unroll(unroll):
                            o = start + c * chunk + thread + i * threads
                            if o < end:
                                at = piece.address(base, o, inner, stride, magic, shift)
                                if piece.straddle:
                                    piece.write_straddling(
                                        *(Y, W, B, moving, i, at, state[1], reciprocal[0]),
                                        *(first, o, inner, magic, shift),
                                    )
                                else:
                                    if mode == "group":
                                        piece.affine(
                                            *(W, B, scale, offset, i, first, o),
                                            *(inner, magic, shift),
                                        )
                                    j = i if mode == "group" else 0
                                    piece.write(
                                        *(Y, moving, i, at, state[1], reciprocal[0]),
                                        *(scale[j], offset[j]),
                                    )
                        if unit + depth * teams < units:
                            piece.fetch(
                                *(X, stash, before % depth, c, unroll),
                                T.cast(unit + depth * teams, "int64") * pitch,
                                *(start + c * chunk + thread, threads, end, thread),
                                *(inner, stride, magic, shift),
                            )
                    T.ptx_commit_group()
            if counts_at_once and block == 0 and thread == 0:
                C3 = T.make_tensor_from_addr(counter, (1,), "int64")
                C3[0] = C3[0] + 1

        if running and mode == "instance":
            average_running(
                *(traits, workspace + T.cast(units, "int64") * members * 8),
                *(running_mean, running_var, units, groups, momentum),
            )
        if traits.counted and traits.averaged:
            with T.Kernel(1, threads=1) as _:
                C2 = T.make_tensor_from_addr(counter, (1,), "int64")
                C2[0] = C2[0] + 1

    return team.with_attr("global_symbol", "team")
