"""Channels of a batch side by side, any number of rows: read twice, over many blocks."""

from typing import Any

from tileops.norm.channels.column_pieces import column_pieces
from tileops.norm.channels.layouts import MOST_CHANNELS, ColumnsSplitLayout
from tileops.norm.channels.pieces import PRELUDE
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "columns_split"]

#: The parameters of the program, in order: those of ``columns``, and the number of parts that the
#: rows are cut into and the rows of one of them.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var", "counter", "workspace"),
    *("samples", "channels", "space", "width", "tile", "together", "magic", "shift"),
    *("parts", "part", "elements", "eps", "momentum"),
)


def columns_split(traits: Traits, layout: ColumnsSplitLayout) -> Any:
    """As ``columns``, with a launch for the statistics of each part of the rows.

    ``workspace`` takes the mean and the squares of each channel's part. The second launch goes
    through the parts backwards, to start with what the caches saw last.
    """
    import tilelang.language as T

    threads, vector, unroll = layout.threads, layout.vector, layout.unroll
    dtype, running = traits.dtype, traits.running
    piece = column_pieces(traits, threads, vector)

    @T.prim_func
    def columns_split(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        counter: T.int64,
        workspace: T.int64,
        samples: T.int64,
        channels: T.int32,
        space: T.int32,
        width: T.int64,
        tile: T.int32,
        together: T.int32,
        magic: T.int64,
        shift: T.int32,
        parts: T.int32,
        part: T.int64,
        elements: T.float32,
        eps: T.float32,
        momentum: T.float32,
    ):
        with T.Kernel(T.ceildiv(channels, together), parts, threads=threads, prelude=PRELUDE) as (
            index,
            p,
        ):
            X = T.make_tensor_from_addr(x, (width, vector), dtype)
            S = T.make_tensor_from_addr(workspace, (2, channels, parts), "float32")
            values = T.alloc_local((unroll, vector), dtype)
            count = T.alloc_local((1,), "float32")
            mean = T.alloc_local((vector,), "float32")
            squares = T.alloc_local((vector,), "float32")
            own = T.alloc_shared((2, threads * vector), "float32")
            counts = T.alloc_shared((threads,), "float32")
            state = T.alloc_local((3,), "float32")
            thread = T.get_thread_binding()
            kept = T.alloc_local((2,), "int32")
            kept[0] = T.cast(threads // T.cast(tile, "uint32"), "int32")
            kept[1] = T.cast(T.cast(thread, "uint32") // T.cast(tile, "uint32"), "int32")
            rows = kept[0]
            row = kept[1]
            at = T.cast(index, "int64") * tile + (thread - row * tile)
            active = row < rows and at < width
            first = T.cast(index, "int32") * together
            here = T.min(together, channels - first)
            start = T.cast(p, "int64") * part
            end = T.min(start + part, samples)

            count[0] = 0.0
            for v in T.unroll(vector):
                mean[v] = 0.0
                squares[v] = 0.0
            for c in T.serial(T.cast(T.ceildiv(end - start, rows * unroll), "int32")):
                r = start + c * (rows * unroll) + row
                piece.read_rows(X, values, unroll, r, rows, end, active, width, at)
                piece.add_rows(values, unroll, r, rows, end, active, count, mean, squares)
            piece.lay_out(own, counts, thread, count[0], mean, squares)
            for k in T.serial(T.ceildiv(here - thread // 32, threads // 32)):
                channel = k * (threads // 32) + thread // 32
                piece.gather(own, counts, state, channel, rows, tile, space, magic, shift, thread)
                if thread % 32 == 0:
                    S[0, first + channel, p] = state[1]
                    S[1, first + channel, p] = state[2]
            if traits.counted and index == 0 and p == 0 and thread == 0:
                C = T.make_tensor_from_addr(counter, (1,), "int64")
                C[0] = C[0] + 1

        with T.Kernel(T.ceildiv(channels, together), parts, threads=threads) as (index2, mirrored):
            X2 = T.make_tensor_from_addr(x, (width, vector), dtype)
            Y = T.make_tensor_from_addr(y, (width, vector), dtype)
            S2 = T.make_tensor_from_addr(workspace, (2, channels, parts), "float32")
            values2 = T.alloc_local((unroll, vector), dtype)
            mean2 = T.alloc_local((vector,), "float32")
            reciprocal = T.alloc_local((vector,), "float32")
            offset = T.alloc_local((vector,), "float32")
            final = T.alloc_shared((2, MOST_CHANNELS), "float32")
            state2 = T.alloc_local((3,), "float32")
            thread2 = T.get_thread_binding()
            p2 = parts - 1 - T.cast(mirrored, "int32")
            kept2 = T.alloc_local((2,), "int32")
            kept2[0] = T.cast(threads // T.cast(tile, "uint32"), "int32")
            kept2[1] = T.cast(T.cast(thread2, "uint32") // T.cast(tile, "uint32"), "int32")
            rows2 = kept2[0]
            row2 = kept2[1]
            column = thread2 - row2 * tile
            at2 = T.cast(index2, "int64") * tile + column
            active2 = row2 < rows2 and at2 < width
            first2 = T.cast(index2, "int32") * together
            here2 = T.min(together, channels - first2)
            start2 = T.cast(p2, "int64") * part
            end2 = T.min(start2 + part, samples)

            for k2 in T.serial(T.ceildiv(here2 - thread2 // 32, threads // 32)):
                channel2 = k2 * (threads // 32) + thread2 // 32
                piece.clear(state2)
                for j in T.serial(T.ceildiv(parts - thread2 % 32, 32)):
                    other = j * 32 + thread2 % 32
                    piece.merge(
                        state2,
                        T.cast(T.min(part, samples - T.cast(other, "int64") * part), "float32")
                        * T.cast(space, "float32"),
                        S2[0, first2 + channel2, other],
                        S2[1, first2 + channel2, other],
                    )
                piece.across(state2, 32)
                if thread2 % 32 == 0:
                    final[0, channel2] = state2[1]
                    final[1, channel2] = T.rsqrt(state2[2] / elements + eps)
                    if running and p2 == 0:
                        RM = T.make_tensor_from_addr(running_mean, (channels,), running)
                        RV = T.make_tensor_from_addr(running_var, (channels,), running)
                        factor = T.alloc_local((1,), "float32")
                        factor[0] = momentum
                        if traits.averaged:
                            C2 = T.make_tensor_from_addr(counter, (1,), "int64")
                            factor[0] = 1.0 / T.cast(C2[0], "float32")
                        piece.track(RM, first2 + channel2, state2[1], factor[0])
                        piece.track(RV, first2 + channel2, state2[2] / (elements - 1.0), factor[0])
            T.sync_threads()
            if active2:
                piece.look_up(
                    *(final, weight, bias, channels, mean2, reciprocal, offset),
                    *(first2, column, magic, shift),
                )
            piece.normalize_rows(
                *(X2, Y, values2, unroll, start2, end2, rows2, row2, active2, width, at2),
                *(mean2, reciprocal, offset),
            )

    return columns_split.with_attr("global_symbol", "columns_split")
