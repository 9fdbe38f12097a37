"""A unit in registers: read once, by a block, by a part of one, or by a cluster."""

from typing import Any

from tileops.norm.channels.layouts import HeldLayout
from tileops.norm.channels.pieces import PRELUDE, pieces
from tileops.norm.channels.programs.running import average_running
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "held"]

#: The parameters of the program, in order.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var", "counter", "workspace"),
    *("units", "size", "inner", "stride", "pitch", "groups", "per", "magic", "shift"),
    *("elements", "eps", "momentum"),
)


def held(traits: Traits, layout: HeldLayout) -> Any:
    """Units of up to what the registers of a block, or of a cluster's blocks, hold."""
    import tilelang.language as T

    lanes, together, cluster = layout.lanes, layout.units, layout.cluster
    accesses, vector = layout.accesses, layout.vector
    dtype, mode = traits.dtype, traits.mode
    affine_dtype, running = traits.affine or dtype, traits.running
    warps = max(lanes // 32, 1) * cluster
    span = lanes * cluster
    piece = pieces(traits, vector, layout.straddle, layout.wide)
    # The launch of a batch that averages is followed by one that counts: who reads the counter
    # must not race with who raises it.
    counts_at_once = traits.counted and not traits.averaged

    @T.prim_func
    def held(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        counter: T.int64,
        workspace: T.int64,
        units: T.int64,
        size: T.int32,
        inner: T.int32,
        stride: T.int64,
        pitch: T.int64,
        groups: T.int64,
        per: T.int32,
        magic: T.int64,
        shift: T.int32,
        elements: T.float32,
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(
            T.ceildiv(units, together) * cluster,
            threads=lanes * together,
            cluster_dims=cluster if cluster > 1 else None,
            prelude=PRELUDE,
        ) as block:
            X = T.make_tensor_from_addr(x, (pitch, vector), dtype)
            Y = T.make_tensor_from_addr(y, (pitch, vector), dtype)
            W = T.make_tensor_from_addr(weight, (groups,), affine_dtype)
            B = T.make_tensor_from_addr(bias, (groups,), affine_dtype)
            values = T.alloc_local((accesses, vector), dtype)
            state = T.alloc_local((3,), "float32")
            scale = T.alloc_local((accesses,), "float32")
            offset = T.alloc_local((accesses,), "float32")
            partial = T.alloc_shared((3, together, warps), "float32")
            barrier = T.alloc_shared((1,), "uint64")
            if cluster > 1:
                T.pdl_sync()  # see clusters.py
            thread = T.get_thread_binding()
            # Kept in registers of their own: TileLang would write them out, and try to simplify
            # them, at each use, which made a build take half a minute.
            kept = T.alloc_local((3,), "int32")
            place = T.alloc_local((2,), "int64")
            kept[0] = T.cast(block % cluster, "int32")
            kept[1] = kept[0] * lanes + thread % lanes
            place[0] = T.cast(block // cluster, "int64") * together + thread // lanes
            place[1] = place[0] * pitch
            rank = kept[0]
            lane = kept[1]
            unit = place[0]
            base = place[1]
            kept[2] = size
            if together > 1 and unit >= units:
                kept[2] = 0
            end = kept[2]

            if cluster > 1:
                piece.announce(barrier, partial, thread, warps)
            piece.read(X, values, accesses, base, lane, span, end, inner, stride, magic, shift)
            first = piece.first_channel(unit, groups, per)
            # A batch's or a sample's channel has one weight; those of a group come when they are
            # needed, since to hold them costs registers.
            if not piece.straddle and mode != "group" and (together == 1 or unit < units):
                piece.affine(W, B, scale, offset, 0, first, 0, inner, magic, shift)
            piece.accumulate(values, accesses, lane, span, end, state, True)
            piece.settle(state, partial, thread, lanes, cluster, rank, barrier)

            if running and lane == 0 and (together == 1 or unit < units):
                piece.move_running(
                    *(running_mean, running_var, counter, workspace, state),
                    *(unit, units, groups, elements, momentum, 1),
                )
            if counts_at_once and unit == 0 and lane == 0:
                C = T.make_tensor_from_addr(counter, (1,), "int64")
                C[0] = C[0] + 1

            reciprocal = T.alloc_local((1,), "float32")
            reciprocal[0] = T.rsqrt(state[2] / elements + eps)
            for i in T.unroll(accesses):
                o = lane + i * span
                if o < end:
                    at = piece.address(base, o, inner, stride, magic, shift)
                    if piece.straddle:
                        piece.write_straddling(
                            *(Y, W, B, values, i, at, state[1], reciprocal[0]),
                            *(first, o, inner, magic, shift),
                        )
                    else:
                        if mode == "group":
                            piece.affine(W, B, scale, offset, i, first, o, inner, magic, shift)
                        k = i if mode == "group" else 0
                        piece.write(Y, values, i, at, state[1], reciprocal[0], scale[k], offset[k])

        if running and mode == "instance":
            average_running(
                *(traits, workspace, running_mean, running_var, units, groups, momentum, cluster)
            )
        if traits.counted and traits.averaged:
            # A cluster, as every launch of the program: see average_running.
            with T.Kernel(cluster, threads=1) as block2:
                if cluster > 1:
                    T.pdl_sync()
                C = T.make_tensor_from_addr(counter, (1,), "int64")
                if block2 == 0:
                    C[0] = C[0] + 1

    return held.with_attr("global_symbol", "held")
