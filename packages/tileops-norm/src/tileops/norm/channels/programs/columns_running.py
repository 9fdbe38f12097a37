"""Normalizing by running statistics, channels side by side."""

from typing import Any

from tileops.norm.channels.column_pieces import column_pieces
from tileops.norm.channels.layouts import MOST_CHANNELS, ColumnsRunningLayout
from tileops.norm.channels.pieces import PRELUDE
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "columns_running"]

#: The parameters of the program, in order: those of ``columns_split`` that it needs.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var"),
    *("samples", "channels", "space", "width", "tile", "together", "magic", "shift"),
    *("parts", "part", "eps"),
)


def columns_running(traits: Traits, layout: ColumnsRunningLayout) -> Any:
    """A thread keeps to one access's columns, whose channels it looks up once for many rows."""
    import tilelang.language as T

    threads, vector, unroll = layout.threads, layout.vector, layout.unroll
    dtype, running = traits.dtype, traits.running
    piece = column_pieces(traits, threads, vector)

    @T.prim_func
    def columns_running(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
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
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(channels, together), parts, threads=threads, prelude=PRELUDE) as (
            index,
            p,
        ):
            X = T.make_tensor_from_addr(x, (width, vector), dtype)
            Y = T.make_tensor_from_addr(y, (width, vector), dtype)
            RM = T.make_tensor_from_addr(running_mean, (channels,), running)
            RV = T.make_tensor_from_addr(running_var, (channels,), running)
            values = T.alloc_local((unroll, vector), dtype)
            mean = T.alloc_local((vector,), "float32")
            reciprocal = T.alloc_local((vector,), "float32")
            offset = T.alloc_local((vector,), "float32")
            final = T.alloc_shared((2, MOST_CHANNELS), "float32")
            thread = T.get_thread_binding()
            kept = T.alloc_local((2,), "int32")
            kept[0] = T.cast(threads // T.cast(tile, "uint32"), "int32")
            kept[1] = T.cast(T.cast(thread, "uint32") // T.cast(tile, "uint32"), "int32")
            rows = kept[0]
            row = kept[1]
            column = thread - row * tile
            at = T.cast(index, "int64") * tile + column
            active = row < rows and at < width
            first = T.cast(index, "int32") * together
            here = T.min(together, channels - first)
            start = T.cast(p, "int64") * part
            end = T.min(start + part, samples)

            if thread < here:
                final[0, thread] = T.cast(RM[first + thread], "float32")
                final[1, thread] = T.rsqrt(T.cast(RV[first + thread], "float32") + eps)
            T.sync_threads()
            if active:
                piece.look_up(
                    *(final, weight, bias, channels, mean, reciprocal, offset),
                    *(first, column, magic, shift),
                )
            piece.normalize_rows(
                *(X, Y, values, unroll, start, end, rows, row, active, width, at),
                *(mean, reciprocal, offset),
            )

    return columns_running.with_attr("global_symbol", "columns_running")
