"""A unit over many blocks: one launch for the statistics of its parts, one to normalize them."""

from typing import Any

from tileops.norm.channels.layouts import SplitLayout
from tileops.norm.channels.pieces import PRELUDE, pieces
from tileops.norm.channels.programs.running import average_running
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "split"]

#: The parameters of the program, in order.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var", "counter", "workspace"),
    *("units", "size", "inner", "stride", "pitch", "groups", "per", "magic", "shift"),
    *("parts", "part", "elements", "eps", "momentum"),
)


def split(traits: Traits, layout: SplitLayout) -> Any:
    """Units of any size; ``workspace`` takes the mean and the squares of each part.

    The second launch goes through units, parts and accesses backwards, to start with what the
    caches saw last.
    """
    import tilelang.language as T

    threads, vector, unroll = layout.threads, layout.vector, layout.unroll
    dtype, mode = traits.dtype, traits.mode
    affine_dtype, running = traits.affine or dtype, traits.running
    piece = pieces(traits, vector, layout.straddle, layout.wide)
    place, warps, chunk = piece.place_dtype, threads // 32, threads * unroll

    @T.prim_func
    def split(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        counter: T.int64,
        workspace: T.int64,
        units: T.int64,
        size: T.int64,
        inner: T.int64,
        stride: T.int64,
        pitch: T.int64,
        groups: T.int64,
        per: T.int32,
        magic: T.int64,
        shift: T.int32,
        parts: T.int32,
        part: T.int32,
        elements: T.float32,
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(units * parts, threads=threads, prelude=PRELUDE) as block:
            X = T.make_tensor_from_addr(x, (pitch, vector), dtype)
            S = T.make_tensor_from_addr(workspace, (2, units * parts), "float32")
            values = T.alloc_local((unroll, vector), dtype)
            state = T.alloc_local((3,), "float32")
            partial = T.alloc_shared((3, 1, warps), "float32")
            thread = T.get_thread_binding()
            # Kept in registers of their own: TileLang would write the divisions out at each use.
            kept = T.alloc_local((2,), "int64")
            kept[0] = T.cast(T.cast(block, "uint32") // T.cast(parts, "uint32"), "int64")
            kept[1] = (T.cast(block, "int64") - kept[0] * parts) * part
            unit = kept[0]
            start = kept[1]
            end = T.cast(T.min(start + part, size), place)
            length = T.cast(inner, place)
            piece.clear(state)
            for c in T.serial(T.cast((end - start + (chunk - 1)) // chunk, "int32")):
                o = T.cast(start, place) + c * chunk + thread
                piece.read(
                    *(X, values, unroll, unit * pitch, o, threads, end),
                    *(length, stride, magic, shift),
                )
                piece.accumulate(values, unroll, o, threads, end, state, False)
            piece.settle(state, partial, thread, threads, 1, 0, None)
            if thread == 0:
                S[0, T.cast(block, "int64")] = state[1]
                S[1, T.cast(block, "int64")] = state[2]
                if traits.counted and block == 0:
                    C = T.make_tensor_from_addr(counter, (1,), "int64")
                    C[0] = C[0] + 1

        with T.Kernel(units * parts, threads=threads) as mirrored:
            X2 = T.make_tensor_from_addr(x, (pitch, vector), dtype)
            Y = T.make_tensor_from_addr(y, (pitch, vector), dtype)
            W = T.make_tensor_from_addr(weight, (groups,), affine_dtype)
            B = T.make_tensor_from_addr(bias, (groups,), affine_dtype)
            S2 = T.make_tensor_from_addr(workspace, (2, units * parts), "float32")
            values2 = T.alloc_local((unroll, vector), dtype)
            state2 = T.alloc_local((3,), "float32")
            scale = T.alloc_local((unroll,), "float32")
            offset = T.alloc_local((unroll,), "float32")
            reciprocal = T.alloc_local((1,), "float32")
            partial2 = T.alloc_shared((3, 1, warps), "float32")
            thread2 = T.get_thread_binding()
            kept2 = T.alloc_local((3,), "int64")
            kept2[0] = units * parts - 1 - T.cast(mirrored, "int64")
            kept2[1] = T.cast(T.cast(kept2[0], "uint32") // T.cast(parts, "uint32"), "int64")
            kept2[2] = kept2[0] - kept2[1] * parts
            unit2 = kept2[1]
            rank = kept2[2]
            start2 = rank * part
            end2 = T.cast(T.min(start2 + part, size), place)
            length2 = T.cast(inner, place)
            first = piece.first_channel(unit2, groups, per)
            if not piece.straddle and mode != "group":
                piece.affine(W, B, scale, offset, 0, first, 0, length2, magic, shift)

            piece.merge_parts(S2, state2, partial2, thread2, threads, unit2, parts, part, size)
            reciprocal[0] = T.rsqrt(state2[2] / elements + eps)

            if running and thread2 == 0 and rank == 0:
                piece.move_running(
                    *(running_mean, running_var, counter, workspace + units * parts * 8, state2),
                    *(unit2, units, groups, elements, momentum, 0),
                )

            chunks = T.cast((end2 - start2 + (chunk - 1)) // chunk, "int32")
            for c2 in T.serial(chunks):
                o2 = T.cast(start2, place) + (chunks - 1 - c2) * chunk + thread2
                piece.read(
                    *(X2, values2, unroll, unit2 * pitch, o2, threads, end2),
                    *(length2, stride, magic, shift),
                )
                for i in T.unroll(unroll):
                    p = o2 + i * threads
                    if p < end2:
                        at = piece.address(unit2 * pitch, p, length2, stride, magic, shift)
                        if piece.straddle:
                            piece.write_straddling(
                                *(Y, W, B, values2, i, at, state2[1], reciprocal[0]),
                                *(first, p, length2, magic, shift),
                            )
                        else:
                            if mode == "group":
                                piece.affine(
                                    W, B, scale, offset, i, first, p, length2, magic, shift
                                )
                            j = i if mode == "group" else 0
                            piece.write(
                                *(Y, values2, i, at, state2[1], reciprocal[0]),
                                *(scale[j], offset[j]),
                            )

        if running and mode == "instance":
            average_running(
                *(traits, workspace + units * parts * 8, running_mean, running_var),
                *(units, groups, momentum),
            )

    return split.with_attr("global_symbol", "split")
