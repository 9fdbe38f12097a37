"""The steps that the channel norms' programs share, as TileLang macros over one thread's registers.

Statistics travel as ``state``: how many values, their mean, and the sum of squared differences from
it. Two of them are merged by Chan's formula (Chan, Golub, LeVeque 1983), so that a large mean
cancels nothing.

An access is ``vector`` elements, and places are counted in accesses: access ``o`` of a unit is its
``o``-th from the unit's start. A *part* is the accesses from ``start`` to ``end`` of a unit. Where
an access may straddle channels, ``inner`` counts elements instead.
"""

from types import SimpleNamespace
from typing import Any

from tileops.norm import clusters
from tileops.norm.channels.traits import Traits

__all__ = ["PASS_CONFIGS", "PRELUDE", "pieces"]

#: Every access is guarded where it needs to be, and every barrier is written out.
PASS_CONFIGS = {"tl.disable_safe_memory_legalize": True, "tl.disable_thread_storage_sync": True}

PRELUDE = f"""{clusters.SOURCE}
namespace tileops {{
// n / divisor for 0 <= n < 2**31; see tileops.norm.channels.shapes.divider.
static __device__ __forceinline__ int divide(int n, long long magic, int shift) {{
  return (int)((__umulhi((unsigned)n, (unsigned)magic) + (unsigned)n) >> shift);
}}
}}  // namespace tileops
"""


def pieces(traits: Traits, vector: int, straddle: bool, wide: bool = False) -> Any:
    """Macros for units of ``traits.mode``; ``wide`` places need 64 bits."""
    import tilelang.language as T

    dtype, weighted, biased = traits.dtype, traits.weighted, traits.biased
    batch, group = traits.mode == "batch", traits.mode == "group"
    place_dtype = "int64" if wide else "int32"

    def quotient(n: Any, divisor: Any, magic: Any, shift: Any) -> Any:
        """n // divisor, of a place."""
        if wide:
            return T.cast(T.cast(n, "uint64") // T.cast(divisor, "uint64"), "int64")
        return T.call_extern("int32", "tileops::divide", n, magic, shift)

    def address(base: Any, o: Any, inner: Any, stride: Any, magic: Any, shift: Any) -> Any:
        """Where access ``o`` of a unit that starts at ``base`` lies."""
        if not batch:
            return base + o
        segment = quotient(o, inner, magic, shift)
        return base + T.cast(segment, "int64") * stride + (o - segment * inner)

    def first_channel(unit: Any, groups: Any, per: Any) -> Any:
        """The first channel of a unit."""
        if batch:
            return unit
        if wide:
            return T.cast(T.cast(unit, "uint64") % T.cast(groups, "uint64"), "int64") * per
        return T.cast(T.cast(unit, "uint32") % T.cast(groups, "uint32"), "int32") * per

    @T.macro
    def read(X, held, count, base, o, step, end, inner, stride, magic, shift):
        """held[i] = access o + i * step of the unit, zeros from ``end`` on."""
        for i in T.unroll(count):
            if o + i * step < end:
                at = address(base, o + i * step, inner, stride, magic, shift)
                for v in T.vectorized(vector):
                    held[i, v] = X[at, v]
            else:
                for v in T.vectorized(vector):
                    held[i, v] = T.cast(0, dtype)

    @T.macro
    def clear(state):
        for k in T.unroll(3):
            state[k] = 0.0

    @T.macro
    def merge(state, count, mean, squares):
        """Merges the statistics of ``count`` values, at least one, into ``state``."""
        share = T.alloc_local((2,), "float32")
        share[0] = count / (state[0] + count)
        share[1] = mean - state[1]
        state[2] += squares + share[1] * share[1] * state[0] * share[0]
        state[1] += share[1] * share[0]
        state[0] += count

    @T.macro
    def accumulate(held, count, o, step, end, state, fresh):
        """Merges what ``read`` gave into ``state``, or is its first values where ``fresh``."""
        whole = T.alloc_local((4,), "float32")  # their number, sum, mean and squares
        part = T.alloc_local((1,), "float32")  # of one access, to shorten the chain of additions
        whole[0] = 0.0
        whole[1] = 0.0
        whole[3] = 0.0
        for i in T.unroll(count):
            if o + i * step < end:
                whole[0] += vector
            part[0] = 0.0
            for v in T.unroll(vector):
                part[0] += T.cast(held[i, v], "float32")
            whole[1] += part[0]
        whole[2] = whole[1] / T.max(whole[0], 1.0)
        for i in T.unroll(count):
            if o + i * step < end:
                part[0] = 0.0
                for v in T.unroll(vector):
                    part[0] += (T.cast(held[i, v], "float32") - whole[2]) * (
                        T.cast(held[i, v], "float32") - whole[2]
                    )
                whole[3] += part[0]
        if fresh:
            state[0] = whole[0]
            state[1] = whole[2]
            state[2] = whole[3]
        elif whole[0] > 0.0:
            merge(state, whole[0], whole[2], whole[3])

    @T.macro
    def across(state, lanes):
        """state = the statistics of ``lanes`` neighbouring threads together, in each of them."""
        both = T.alloc_local((4,), "float32")
        both[0] = state[0]
        both[1] = state[0] * state[1]
        for k in T.unroll(lanes.bit_length() - 1):
            both[0] += T.shfl_xor(both[0], 1 << k)
            both[1] += T.shfl_xor(both[1], 1 << k)
        both[2] = both[1] / T.max(both[0], 1.0)
        both[3] = state[2] + state[0] * (state[1] - both[2]) * (state[1] - both[2])
        for k in T.unroll(lanes.bit_length() - 1):
            both[3] += T.shfl_xor(both[3], 1 << k)
        state[0] = both[0]
        state[1] = both[2]
        state[2] = both[3]

    @T.macro
    def announce(barrier, box, thread, count):
        """The block runs, and expects the statistics of ``count`` parts in ``box``."""
        if thread == 0:
            T.call_extern(
                "handle",
                "clusters::expect",
                T.address_of(barrier[0]),
                count * 12,
                T.address_of(box[0, 0, 0]),
            )
        T.call_extern("handle", "clusters::arrive")

    @T.macro
    def settle(state, partial, thread, lanes, cluster, rank, barrier):
        """state = the statistics of the unit, in each of its threads, from each thread's own.

        partial: [3, units, warps of the cluster] in shared memory. A block of several warps
        waits for them, a cluster for all its blocks, after the caller's ``announce``.
        """
        warps = max(lanes // 32, 1) * cluster
        across(state, min(lanes, 32))
        if warps > 1:
            slot = rank * max(lanes // 32, 1) + thread % lanes // 32
            if cluster > 1:
                # Only when they run may their shared memory be written.
                T.call_extern("handle", "clusters::ready")
                if thread % 32 < cluster:
                    for k in T.unroll(3):
                        T.call_extern(
                            "handle",
                            "clusters::send",
                            T.address_of(partial[k, 0, slot]),
                            T.address_of(barrier[0]),
                            thread % 32,
                            state[k],
                        )
                T.call_extern("handle", "clusters::await", T.address_of(barrier[0]))
            else:
                if thread % 32 == 0:
                    for k in T.unroll(3):
                        partial[k, thread // lanes, slot] = state[k]
                T.sync_threads()
            clear(state)
            if warps <= 4:
                whole = T.alloc_local((2,), "float32")
                whole[0] = 0.0
                for w in T.unroll(warps):
                    state[0] += partial[0, thread // lanes, w]
                    whole[0] += partial[0, thread // lanes, w] * partial[1, thread // lanes, w]
                state[1] = whole[0] / state[0]
                for w in T.unroll(warps):
                    whole[1] = partial[1, thread // lanes, w] - state[1]
                    state[2] += (
                        partial[2, thread // lanes, w]
                        + partial[0, thread // lanes, w] * whole[1] * whole[1]
                    )
            else:
                width = min(1 << (warps - 1).bit_length(), 32)
                if thread % width < warps:
                    for k in T.unroll(3):
                        state[k] = partial[k, thread // lanes, thread % width]
                for w in T.unroll(1, -(-warps // width)):
                    w2 = w * width + thread % width
                    if w2 < warps and partial[0, thread // lanes, w2] > 0.0:
                        merge(
                            state,
                            partial[0, thread // lanes, w2],
                            partial[1, thread // lanes, w2],
                            partial[2, thread // lanes, w2],
                        )
                across(state, width)

    @T.macro
    def merge_parts(S, state, partial, thread, threads, unit, parts, part, size):
        """state = the statistics of a unit, from the mean and squares that its parts left in S."""
        clear(state)
        for k in T.serial((parts - thread + (threads - 1)) // threads):
            other = k * threads + thread
            merge(
                state,
                T.cast(
                    T.min(T.cast(part, "int64"), size - T.cast(other, "int64") * part), "float32"
                )
                * vector,
                S[0, unit * parts + other],
                S[1, unit * parts + other],
            )
        settle(state, partial, thread, threads, 1, 0, None)

    @T.macro
    def affine(W, B, scale, offset, i, first, o, inner, magic, shift):
        """scale[i] and offset[i] = weight and bias of access ``o``, of one channel."""
        channel = first + quotient(o, inner, magic, shift) if group else first
        scale[i] = T.cast(W[channel], "float32") if weighted else 1.0
        offset[i] = T.cast(B[channel], "float32") if biased else 0.0

    @T.macro
    def write(Y, held, i, at, mean, reciprocal, scale, offset):
        """Access ``at`` = held[i], normalized, by the weight and bias of one channel."""
        out = T.alloc_local((vector,), dtype)
        for v in T.unroll(vector):
            out[v] = T.cast(
                (T.cast(held[i, v], "float32") - mean) * (reciprocal * scale) + offset, dtype
            )
        for v in T.vectorized(vector):
            Y[at, v] = out[v]

    @T.macro
    def write_straddling(Y, W, B, held, i, at, mean, reciprocal, first, o, inner, magic, shift):
        """As ``write``; each element has a channel of its own."""
        out = T.alloc_local((vector,), dtype)
        value = T.alloc_local((1,), "float32")
        for v in T.unroll(vector):
            channel = first + quotient(o * vector + v, inner, magic, shift)
            value[0] = (T.cast(held[i, v], "float32") - mean) * reciprocal
            if weighted:
                value[0] = value[0] * T.cast(W[channel], "float32")
            if biased:
                value[0] = value[0] + T.cast(B[channel], "float32")
            out[v] = T.cast(value[0], dtype)
        for v in T.vectorized(vector):
            Y[at, v] = out[v]

    @T.macro
    def track(R, channel, value, factor):
        """A running statistic moves towards ``value``."""
        R[channel] = T.cast(
            (1.0 - factor) * T.cast(R[channel], "float32") + factor * value, traits.running
        )

    @T.macro
    def move_running(
        running_mean,
        running_var,
        counter,
        averages,
        state,
        unit,
        units,
        groups,
        elements,
        momentum,
        ahead,
    ):
        """The running statistics of a unit's channel move; those that many units move together are
        left at ``averages``, for ``average_running``.

        ahead: how many batches the counter has not counted yet.
        """
        if batch:
            RM = T.make_tensor_from_addr(running_mean, (groups,), traits.running)
            RV = T.make_tensor_from_addr(running_var, (groups,), traits.running)
            factor = T.alloc_local((1,), "float32")
            factor[0] = momentum
            if traits.averaged:
                C = T.make_tensor_from_addr(counter, (1,), "int64")
                factor[0] = 1.0 / T.cast(C[0] + ahead, "float32")
            track(RM, unit, state[1], factor[0])
            track(RV, unit, state[2] / (elements - 1.0), factor[0])
        else:
            U = T.make_tensor_from_addr(averages, (2, units), "float32")
            U[0, unit] = state[1]
            U[1, unit] = state[2] / (elements - 1.0)

    return SimpleNamespace(
        place_dtype=place_dtype,
        straddle=straddle and group,
        quotient=quotient,
        address=address,
        first_channel=first_channel,
        read=read,
        clear=clear,
        accumulate=accumulate,
        merge=merge,
        across=across,
        announce=announce,
        settle=settle,
        merge_parts=merge_parts,
        move_running=move_running,
        affine=affine,
        write=write,
        write_straddling=write_straddling,
        track=track,
    )
