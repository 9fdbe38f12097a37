"""The steps of ``programs/even.py``, as TileLang macros: every thread holds equally many values.

So what is merged is always of equal counts, which a build knows: a mean is a sum times a constant,
and Chan's formula (Chan, Golub, LeVeque 1983) merges two sets of ``n`` values, of means a and b, by
``squares = squares_a + squares_b + (a - b)**2 * n / 2``. Means are summed and squares merged in one
exchange, where a mean first and the squares after it take two. Nothing is cancelled in either.
"""

from types import SimpleNamespace
from typing import Any

from tileops.norm.channels.layouts import MOST_FLOATS, EvenLayout
from tileops.norm.channels.pieces import PRELUDE
from tileops.norm.channels.traits import Traits
from tileops.norm.rows.configs import ITEMSIZE

__all__ = ["SOURCE", "even_pieces"]

SOURCE = (
    PRELUDE
    + r"""
#ifndef TILEOPS_NORM_EVEN  // a program of two kernels has this text twice
#define TILEOPS_NORM_EVEN
namespace even {

__device__ __forceinline__ void read_past_l1(void *to, const void *from) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  *reinterpret_cast<uint4 *>(to) = v;
}

// A hint: what lies there is needed soon.
__device__ __forceinline__ void touch(const void *place) {
  asm volatile("prefetch.global.L1 [%0];" : : "l"(place));
}

// Nothing changes here, since a square has no sign; but the compiler cannot know that, and converts
// the values behind it, when ``known`` is known: those of x anew, which else it would keep as
// floats, in twice the registers; a weight and a bias, for which else the sum of x would wait.
template <typename Bits, int kCount>
__device__ __forceinline__ void convert_behind(void *registers, float known) {
  const unsigned nothing = __float_as_uint(known * known) >> 31;
#pragma unroll
  for (int i = 0; i < kCount; ++i) reinterpret_cast<Bits *>(registers)[i] ^= nothing;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Two numbers to the same place of the block ``rank``: see clusters.send.
__device__ __forceinline__ void send(void *place, void *barrier, int rank, float a, float b) {
  unsigned there, its;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there) : "r"(clusters::address(place)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(its) : "r"(clusters::address(barrier)), "r"(rank));
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
      : : "r"(there), "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(its) : "memory");
}
#endif

}  // namespace even
#endif
"""
)

#: Chains of additions that a thread runs side by side.
CHAINS = 4


def even_pieces(traits: Traits, layout: EvenLayout) -> Any:
    """Macros over ``state``: the mean of what was merged so far, and the squares."""
    import tilelang.language as T

    accesses, vector, lanes, cluster = layout.accesses, layout.vector, layout.lanes, layout.cluster
    dtype = traits.dtype
    affine_dtype = traits.affine or dtype
    # Two numbers of 16 bits in one word would be put together as soon as both are there.
    bits = "unsigned short" if ITEMSIZE[affine_dtype] == 2 else "unsigned"
    each = accesses * vector
    neighbours = min(lanes, 32)
    warps, width, own = layout.warps, layout.sharing, layout.read
    whole = each <= MOST_FLOATS
    packed = ITEMSIZE[dtype] == 2 and not whole

    @T.macro
    def keep_packed(held, known):
        if packed:
            T.call_extern(
                "handle",
                f"even::convert_behind<unsigned, {each * ITEMSIZE[dtype] // 4}>",
                T.address_of(held[0, 0]),
                known,
            )

    @T.macro
    def read_past_l1(X, at, held, i):
        """held[i] = access ``at``, of 16 bytes."""
        T.call_extern(
            "handle", "even::read_past_l1", T.address_of(held[i, 0]), T.address_of(X[at, 0])
        )

    @T.macro
    def load_affine(W, B, channel, loaded):
        """loaded = weight and bias of one channel, as they are; zeros where there is none."""
        loaded[0] = W[channel] if traits.weighted else T.cast(0, affine_dtype)
        loaded[1] = B[channel] if traits.biased else T.cast(0, affine_dtype)

    @T.macro
    def convert_affine(loaded, scale, offset, known):
        """scale[0] and offset[0] = what ``load_affine`` gave, converted behind ``known``."""
        T.call_extern(
            "handle",
            f"even::convert_behind<{bits}, 2>",
            T.address_of(loaded[0]),
            known,
        )
        scale[0] = T.cast(loaded[0], "float32") if traits.weighted else 1.0
        offset[0] = T.cast(loaded[1], "float32") if traits.biased else 0.0

    @T.macro
    def sum_of(values, count, found):
        """found[0] = the sum of ``count`` values, in chains that run side by side."""
        chains = min(count, CHAINS)
        sums = T.alloc_local((chains,), "float32")
        for v in T.unroll(count):
            if v < chains:
                sums[v] = values[v]
            else:
                sums[v % chains] += values[v]
        for c in T.unroll(1, chains):
            sums[0] += sums[c]
        found[0] = sums[0]

    @T.macro
    def squares_of(values, count, mean, found):
        """found[0] = the sum of squared differences from ``mean``."""
        chains = min(count, CHAINS)
        sums = T.alloc_local((chains,), "float32")
        for v in T.unroll(count):
            if v < chains:
                sums[v] = (values[v] - mean) * (values[v] - mean)
            else:
                sums[v % chains] += (values[v] - mean) * (values[v] - mean)
        for c in T.unroll(1, chains):
            sums[0] += sums[c]
        found[0] = sums[0]

    @T.macro
    def of_thread(held, state):
        """state = the mean of what the thread holds, and the squares.

        Few accesses come at about the same time, and are summed up together. Of many, each is when
        it comes, and merged.
        """
        step = accesses if whole else 1
        count = step * vector
        floats = T.alloc_local((count,), "float32")
        found = T.alloc_local((1,), "float32")
        mean = T.alloc_local((1,), "float32")
        for i in T.unroll(accesses // step):
            for v in T.unroll(count):
                floats[v] = T.cast(held[i * step + v // vector, v % vector], "float32")
            sum_of(floats, count, found)
            mean[0] = found[0] * (1.0 / count)
            squares_of(floats, count, mean[0], found)
            if i == 0:
                state[0] = mean[0]
                state[1] = found[0]
            else:
                # i and 1 times ``count`` values.
                mean[0] = mean[0] - state[0]
                state[0] += mean[0] * (1.0 / (T.cast(i, "float32") + 1.0))
                state[1] += found[0]
                state[1] += (
                    mean[0]
                    * (count * T.cast(i, "float32") / (T.cast(i, "float32") + 1.0))
                    * mean[0]
                )

    @T.macro
    def across(state, width, count):
        """Merges the sets of ``count`` values of ``width`` neighbours; state[0] = their mean."""
        other = T.alloc_local((2,), "float32")
        apart = T.alloc_local((1,), "float32")
        for k in T.unroll(width.bit_length() - 1):
            other[0] = T.shfl_xor(state[0], 1 << k)
            other[1] = T.shfl_xor(state[1], 1 << k)
            # state[0] is the sum of 2**k means here, hence its part of the factor. The product with
            # the factor comes first: it overflows only where what is added does.
            apart[0] = state[0] - other[0]
            # The other's squares come last. Added last, which neighbours round differently, they
            # took up to 2 % off instances, but added 1 % to a group of 8 KiB.
            if traits.mode != "group":
                state[1] += apart[0] * ((0.5 * count) / T.cast(1 << k, "float32")) * apart[0]
            state[1] += other[1]
            if traits.mode == "group":
                state[1] += apart[0] * ((0.5 * count) / T.cast(1 << k, "float32")) * apart[0]
            state[0] += other[0]
        if width > 1:
            state[0] = state[0] * (1.0 / width)

    @T.macro
    def settle(state, partial, thread, rank, barrier):
        """state = the mean and the squares of the unit, in each of its threads.

        partial: [units, warps of the cluster, 2] in shared memory. A block of several warps waits
        for them, a cluster for all its blocks, after the caller's ``announce`` and ``ready``.
        """
        across(state, neighbours, each)
        if warps > 1:
            unit = thread // lanes if layout.units > 1 else 0
            slot = rank * (lanes // 32) + thread % lanes // 32
            if cluster > 1:
                if thread % 32 < cluster:
                    T.call_extern(
                        "handle",
                        "even::send",
                        T.address_of(partial[0, slot, 0]),
                        T.address_of(barrier[0]),
                        thread % 32,
                        state[0],
                        state[1],
                    )
                T.call_extern("handle", "clusters::await", T.address_of(barrier[0]))
            else:
                if thread % 32 == 0:
                    for k in T.vectorized(2):
                        partial[unit, slot, k] = state[k]
                T.sync_threads()
            found = T.alloc_local((own, 2), "float32")
            for w in T.unroll(own):
                for k in T.vectorized(2):
                    found[w, k] = partial[unit, thread % width + w * width, k]
            for k in T.unroll(2):
                state[k] = found[0, k]
                for w in T.unroll(1, own):
                    state[k] += found[w, k]
            if own > 1:
                state[0] = state[0] * (1.0 / own)
                for w in T.unroll(own):
                    found[w, 0] = found[w, 0] - state[0]
                    state[1] += found[w, 0] * (1.0 * each * neighbours) * found[w, 0]
            across(state, width, each * neighbours * own)

    @T.macro
    def announce(barrier, partial, thread):
        """The block runs, and expects the statistics of all warps of the cluster."""
        if thread == 0:
            T.call_extern(
                "handle",
                "clusters::expect",
                T.address_of(barrier[0]),
                warps * 8,
                T.address_of(partial[0, 0, 0]),
            )
        T.call_extern("handle", "clusters::arrive")

    @T.macro
    def touch_weights(W, B, first, per, thread):
        """A hint that they are needed soon. What waits for a cluster drops L1: it comes after."""
        if thread < per:
            if traits.weighted:
                T.call_extern("handle", "even::touch", T.address_of(W[first + thread]))
            if traits.biased:
                T.call_extern("handle", "even::touch", T.address_of(B[first + thread]))

    return SimpleNamespace(
        touch_weights=touch_weights,
        read_past_l1=read_past_l1,
        load_affine=load_affine,
        convert_affine=convert_affine,
        each=each,
        warps=warps,
        keep_packed=keep_packed,
        of_thread=of_thread,
        announce=announce,
        settle=settle,
    )
