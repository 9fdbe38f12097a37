"""A unit in registers, of which every thread holds equally many whole accesses: read once."""

from typing import Any

from tileops.norm.channels.even_pieces import SOURCE, even_pieces
from tileops.norm.channels.layouts import EvenLayout
from tileops.norm.channels.pieces import pieces
from tileops.norm.channels.programs.running import average_running
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "even"]

#: The parameters of the program, in order; ``unit_magic`` and ``unit_shift`` divide by ``groups``.
#: A launch passes those that its kernel uses, by the alphabet. What a kernel of few lines waits
#: for, the cache of constants has in one line of 64 bytes then: of an instance all but ``units``.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var", "workspace"),
    *("units", "inner", "groups", "per", "magic", "shift", "unit_magic", "unit_shift"),
    *("eps", "momentum"),
)


def even(traits: Traits, layout: EvenLayout) -> Any:
    """Units whose size is that of the layout: no access is guarded, and no count is counted.

    What was left out, by 640 units of 1 KiB in float16 on an H200, in us, and in brackets of what
    is in L2, beside 2.25 [1.54]: half a warp a unit 2.29 to 2.34 [1.59 to 1.66]; two warps 2.28 to
    2.35 [1.60 to 1.69]; channels and samples as the grid's axes, which spares a division, 2.24
    [1.55] for 2.22 [1.54]; one pass about a thread's first value, the same within 0.04, and less
    exact. Stores that L2 drops first (``.cs``) took 2.08 for 2.22, but behind torch.add 3.93 for
    3.92.
    """
    import tilelang.language as T

    lanes, together, cluster = layout.lanes, layout.units, layout.cluster
    accesses, vector = layout.accesses, layout.vector
    dtype, mode = traits.dtype, traits.mode
    affine_dtype, running = traits.affine or dtype, traits.running
    span = lanes * cluster
    size = span * accesses
    piece = even_pieces(traits, layout)
    channel_piece = pieces(traits, vector, False)

    @T.prim_func
    def even(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        workspace: T.int64,
        units: T.int32,
        inner: T.int32,
        groups: T.int32,
        per: T.int32,
        magic: T.int32,
        shift: T.int32,
        unit_magic: T.int32,
        unit_shift: T.int32,
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(
            T.ceildiv(units, together) * cluster,
            threads=lanes * together,
            cluster_dims=cluster if cluster > 1 else None,
            prelude=SOURCE,
        ) as block:
            if layout.blocks > 1:
                T.annotate_min_blocks_per_sm(layout.blocks)
            X = T.make_tensor_from_addr(x, (size, vector), dtype)
            Y = T.make_tensor_from_addr(y, (size, vector), dtype)
            W = T.make_tensor_from_addr(weight, (groups,), affine_dtype)
            B = T.make_tensor_from_addr(bias, (groups,), affine_dtype)
            values = T.alloc_local((accesses, vector), dtype)
            state = T.alloc_local((2,), "float32")
            scale = T.alloc_local((accesses,), "float32")
            offset = T.alloc_local((accesses,), "float32")
            loaded = T.alloc_local((2,), affine_dtype)
            reciprocal = T.alloc_local((1,), "float32")
            partial = T.alloc_shared((together, piece.warps, 2), "float32")
            barrier = T.alloc_shared((1,), "uint64")
            if cluster > 1:
                T.pdl_sync()  # see clusters.py
            thread = T.get_thread_binding()
            # Kept in registers of their own: TileLang would write them out at each use.
            kept = T.alloc_local((4,), "int32")
            kept[0] = T.cast(block % cluster, "int32")
            kept[1] = T.cast(block // cluster, "int32") * together + thread // lanes
            kept[3] = 1
            if together > 1 and not layout.filled:
                if lanes % 32 == 0:
                    # Warps that are left over of a block end: they are no longer waited for.
                    if kept[1] >= units:
                        T.thread_return()
                else:
                    # Lanes that are left over of a warp, which others need to exchange what they
                    # found, do another unit once more, and write nothing.
                    if kept[1] >= units:
                        kept[3] = 0
                    kept[1] = T.min(kept[1], units - 1)
            rank = kept[0]
            unit = kept[1]
            lane = rank * lanes + thread % lanes
            # A place in one register took up to 3 % off groups of one or two blocks. Those of four
            # or eight took from 0.5 % less to 3 % more, instances up to 5 % more.
            narrow = T.alloc_local((1,), "int32")
            narrow[0] = unit * size + lane
            near = mode == "group" and cluster <= 2
            place = T.cast(narrow[0] if near else unit * size + lane, "int64")

            for i in T.unroll(accesses):
                if layout.past_l1:
                    piece.read_past_l1(X, place + i * span, values, i)
                else:
                    for v in T.vectorized(vector):
                        values[i, v] = X[place + i * span, v]
            if cluster > 1:
                piece.announce(barrier, partial, thread)
            kept[2] = (
                unit
                - T.call_extern("int32", "tileops::divide", unit, unit_magic, unit_shift) * groups
            )
            if mode == "group":
                kept[2] = kept[2] * per
            first = kept[2]
            if mode != "group":
                piece.load_affine(W, B, first, loaded)
            piece.of_thread(values, state)
            if cluster > 1:
                T.call_extern("handle", "clusters::ready")
            if layout.touch and mode == "group":
                piece.touch_weights(W, B, first, per, thread)
            piece.settle(state, partial, thread, rank, barrier)

            if running and lane == 0 and kept[3] != 0:
                U = T.make_tensor_from_addr(workspace, (2, units), "float32")
                U[0, unit] = state[0]
                U[1, unit] = state[1] * (1.0 / (size * vector - 1))

            if mode != "group":
                piece.convert_affine(loaded, scale, offset, state[0])
            reciprocal[0] = T.rsqrt(state[1] * (1.0 / (size * vector)) + eps)
            piece.keep_packed(values, state[0])
            for i in T.unroll(accesses):
                k = i if mode == "group" else 0
                if mode == "group":
                    channel_piece.affine(
                        W, B, scale, offset, i, first, lane + i * span, inner, magic, shift
                    )
                if kept[3] != 0:
                    channel_piece.write(
                        Y, values, i, place + i * span, state[0], reciprocal[0], scale[k], offset[k]
                    )

        if running and mode == "instance":
            average_running(
                *(traits, workspace, running_mean, running_var, units, groups, momentum, cluster)
            )

    return even.with_attr("global_symbol", "even")
