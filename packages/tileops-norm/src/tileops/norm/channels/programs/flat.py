"""Normalizing by running statistics, element by element."""

from typing import Any

from tileops.norm.channels.layouts import FlatLayout
from tileops.norm.channels.pieces import PRELUDE, pieces
from tileops.norm.channels.traits import Traits

__all__ = ["PARAMETERS", "flat"]

#: The parameters of the program, in order. ``size`` counts the accesses of all of x, ``magic`` and
#: ``shift`` divide by ``inner``, the others by the number of channels.
PARAMETERS = (
    *("x", "weight", "bias", "y", "running_mean", "running_var"),
    *("size", "inner", "groups", "magic", "shift", "channel_magic", "channel_shift", "eps"),
)


def flat(traits: Traits, layout: FlatLayout) -> Any:
    """An access is of one channel, whose statistics come from the cache."""
    import tilelang.language as T

    threads, vector, accesses = layout.threads, layout.vector, layout.accesses
    dtype, affine_dtype, running = traits.dtype, traits.affine or traits.dtype, traits.running
    piece = pieces(traits, vector, False, layout.wide)

    @T.prim_func
    def flat(
        x: T.int64,
        weight: T.int64,
        bias: T.int64,
        y: T.int64,
        running_mean: T.int64,
        running_var: T.int64,
        size: T.int64,
        inner: T.int64,
        groups: T.int64,
        magic: T.int64,
        shift: T.int32,
        channel_magic: T.int64,
        channel_shift: T.int32,
        eps: T.float32,
    ):
        with T.Kernel(
            T.ceildiv(size, threads * accesses), threads=threads, prelude=PRELUDE
        ) as block:
            X = T.make_tensor_from_addr(x, (size, vector), dtype)
            Y = T.make_tensor_from_addr(y, (size, vector), dtype)
            W = T.make_tensor_from_addr(weight, (groups,), affine_dtype)
            B = T.make_tensor_from_addr(bias, (groups,), affine_dtype)
            RM = T.make_tensor_from_addr(running_mean, (groups,), running)
            RV = T.make_tensor_from_addr(running_var, (groups,), running)
            values = T.alloc_local((accesses, vector), dtype)
            mean = T.alloc_local((accesses,), "float32")
            reciprocal = T.alloc_local((accesses,), "float32")
            scale = T.alloc_local((accesses,), "float32")
            offset = T.alloc_local((accesses,), "float32")
            thread = T.get_thread_binding()
            o = T.cast(block, piece.place_dtype) * (threads * accesses) + thread
            end = T.cast(size, piece.place_dtype)
            count = T.cast(groups, piece.place_dtype)

            for i in T.unroll(accesses):
                if o + i * threads < end:
                    for v in T.vectorized(vector):
                        values[i, v] = X[T.cast(o + i * threads, "int64"), v]
            for i in T.unroll(accesses):
                if o + i * threads < end:
                    row = piece.quotient(
                        o + i * threads, T.cast(inner, piece.place_dtype), magic, shift
                    )
                    channel = row - count * piece.quotient(row, count, channel_magic, channel_shift)
                    mean[i] = T.cast(RM[channel], "float32")
                    reciprocal[i] = T.rsqrt(T.cast(RV[channel], "float32") + eps)
                    scale[i] = T.cast(W[channel], "float32") if traits.weighted else 1.0
                    offset[i] = T.cast(B[channel], "float32") if traits.biased else 0.0
            for i in T.unroll(accesses):
                if o + i * threads < end:
                    piece.write(
                        *(Y, values, i, T.cast(o + i * threads, "int64")),
                        *(mean[i], reciprocal[i], scale[i], offset[i]),
                    )

    return flat.with_attr("global_symbol", "flat")
