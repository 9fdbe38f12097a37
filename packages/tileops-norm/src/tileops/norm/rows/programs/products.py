"""Sums and sums of squares of half-precision rows, found by tensor cores.

To widen an element, add it up, take its distance from a mean and add up that distance's square are
five instructions of every thread. One ``mma`` of a warp adds up four elements of each of its lanes,
and their squares beside them, on another unit: products of half-precision numbers are exact, and
the sums float32. LayerNorm's 65536 bf16 took 19 instructions an element, and 8 so.

The variance of layer normalization is then the difference of two numbers. Where it is an eighth of
the larger or more (the mean is at most 2.6 deviations), at most 3 of float32's bits are lost, which
a result of half precision does not tell. Of rows of 131072 whose mean is none, on an H200, 5 of
100,000 elements of bfloat16 and 100 of float16 are not float64's, rounded; of those found by
distances 3 of bfloat16's. Other rows, and those whose mean square is 1e30 or more or NaN, are
looked at once more where they are held: their distances from that mean are added up, as
statistics.py does.
4096 rows of 65536 with a mean of 10 deviations took 290 µs so, and 284 by distances alone; 8192 of
32768 279 µs, and 377 in the layout of distances alone.

Tensor cores may round towards zero where they add: what that comes to is in the figures above.
"""

from types import SimpleNamespace
from typing import Any

from tileops.core.errors import KernelBuildError
from tileops.norm.rows.configs import ACCESS_BYTES, ITEMSIZE, Config, WideConfig
from tileops.norm.rows.ops import RowOp

__all__ = ["SOURCE", "products"]

# Stands behind device.SOURCE.
SOURCE = r"""
#ifndef TILEOPS_NORM_PRODUCTS  // a program of two kernels has this text twice
#define TILEOPS_NORM_PRODUCTS
namespace rows {

// c += a * b, of a warp's 16 x 16 and 16 x 8 numbers of half precision, which its lanes hold as PTX
// lays out the fragments of mma.m16n8k16.
template <bool kHalf>
__device__ __forceinline__ void multiply(float *c, uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
#define ROWS_MULTIPLY(type)                                                                        \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                      \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                   \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                    \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
  if constexpr (kHalf) {
    ROWS_MULTIPLY("f16");
  } else {
    ROWS_MULTIPLY("bf16");
  }
#undef ROWS_MULTIPLY
}

// Two words of each lane are a matrix of 16 x 8, of which each four lanes hold a column. What it is
// multiplied by has its own transposed above, so that the columns' sums of squares are the
// product's diagonal, and ones below, so that the other rows are the columns' sums. Two chains of
// such products do not wait for each other.
template <int kWords, int kChains, bool kHalf>
__device__ __forceinline__ void add_products(float *sums, const void *held) {
  const uint32_t ones = kHalf ? 0x3c003c00u : 0x3f803f80u;
  const uint32_t *r = reinterpret_cast<const uint32_t *>(held);
#pragma unroll
  for (int i = 0; i < kWords; i += 2) {
    multiply<kHalf>(sums + i / 2 % kChains * 4, r[i], ones, r[i + 1], ones, r[i], r[i + 1]);
  }
}

// What a lane is to add to its warp's sum, and sum of squares.
template <int kChains>
__device__ __forceinline__ void take_products(float *sum, float *square, const float *sums,
                                              int thread) {
  const int lane = thread % 32;
  float c[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) c[k] = kChains == 2 ? sums[k] + sums[k + 4] : sums[k];
  *sum = lane < 4 ? c[2] + c[3] : 0.0f;
  *square = lane % 4 == lane / 8 ? (lane & 4 ? c[1] : c[0]) : 0.0f;
}

// kCount elements of bfloat16 or float16 from as many floats.
template <int kCount, bool kHalf>
__device__ __forceinline__ void narrow(void *to, const float *from) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    uint32_t pair;
    if constexpr (kHalf) {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
    } else {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
    }
    reinterpret_cast<uint32_t *>(to)[i] = pair;
  }
}

}  // namespace rows
#endif
"""


def products(op: RowOp, n: int, dtype: str, config: Config, move: Any, stats: Any) -> Any:
    """Macros for rows of ``n``; ``s`` is what a thread keeps of one, ``at`` a Place.

    Raises:
        KernelBuildError: the rows are none that tensor cores can add up.
    """
    import tilelang.language as T

    vector = config.vector
    full = vector * ITEMSIZE[dtype] == ACCESS_BYTES and not config.phased
    if dtype not in ("float16", "bfloat16") or not full or op.modulated or op.quantized:
        raise KernelBuildError(
            f"{op.name}: tensor cores add up rows of float16 and bfloat16, by accesses of "
            f"{ACCESS_BYTES} bytes from a row's start, and none that are modulated or quantized; "
            f"not rows of {dtype} in {config}"
        )
    layer = op.statistics == "layer"
    # Where several rows are held, each has a chain of its own.
    chains = 2 if isinstance(config, WideConfig) else 1
    half = "true" if dtype == "float16" else "false"

    @T.macro
    def begin(s):
        for k in T.unroll(4 * chains):
            s.sums[k] = 0.0

    @T.macro
    def add(s, held, count):
        """Add up ``count`` accesses."""
        for k in T.unroll(count):
            T.call_extern(
                "handle",
                f"rows::add_products<{vector // 2}, {chains}, {half}>",
                T.address_of(s.sums[0]),
                T.address_of(held[k, 0]),
            )

    @T.macro
    def take(s, thread):
        """mean, factor = what the thread is to add to its warp's sum, and sum of squares."""
        T.call_extern(
            "handle",
            f"rows::take_products<{chains}>",
            T.address_of(s.mean[0]),
            T.address_of(s.factor[0]),
            T.address_of(s.sums[0]),
            thread,
        )

    @T.macro
    def find(s, eps):
        """mean, factor = the mean and 1 / sqrt(variance + eps) from the row's sums, and shift =
        what is added to a product with the factor; plain is off where that is not exact enough.
        Of RMSNorm the factor = 1 / sqrt(mean of squares + eps)."""
        s.factor[0] = s.factor[0] / n
        if layer:
            square = T.alloc_local((1,), "float32")
            square[0] = s.factor[0]
            s.mean[0] = s.mean[0] / n
            s.factor[0] = square[0] - s.mean[0] * s.mean[0]
            # Off where one of them is NaN, too.
            s.plain[0] = T.And(s.factor[0] * 8.0 >= square[0], square[0] < 1e30)
        s.factor[0] = T.rsqrt(s.factor[0] + eps)
        if layer:
            s.shift[0] = -s.mean[0] * s.factor[0]

    @T.macro
    def find_exactly(s, eps):
        """factor, low = from the sums of the distances from the mean, and of their squares."""
        s.low[0] = s.distance[0] / n
        s.factor[0] = s.factor[0] - s.low[0] * s.distance[0]
        # Rounding may leave a constant row's variance just below zero; NaN stays NaN.
        s.factor[0] = T.if_then_else(s.factor[0] < 0.0, 0.0, s.factor[0])
        s.factor[0] = T.rsqrt(s.factor[0] / n + eps)

    @T.macro
    def join(s, at, eps):
        """As find, after what all threads of the row added up."""
        take(s, at.thread)
        stats.over_lanes(s.factor, 32)
        if layer:
            stats.over_lanes(s.mean, 32)
        stats.share(s.box, s.barrier, (s.factor, s.mean) if layer else (s.factor,), at)
        stats.collect(s.box, (s.factor, s.mean) if layer else (s.factor,), at)
        find(s, eps)

    @T.macro
    def join_exactly(s, at, eps):
        """As find_exactly, likewise."""
        stats.over_lanes(s.factor, 32)
        stats.over_lanes(s.distance, 32)
        if config.cluster == 1:
            # Both boxes have one place, and a warp may still read the first: clusters, which expect
            # what comes from the beginning, have two.
            T.sync_threads()
        stats.share(s.later_box, s.later, (s.factor, s.distance), at)
        stats.collect(s.later_box, (s.factor, s.distance), at)
        find_exactly(s, eps)

    @T.macro
    def write(s, held, k, column_at, at, i, build):
        """Access i = held[k] of the result of a plain row, with columns [column_at]."""
        wide = T.alloc_local((1, vector), "float32")
        move.widen(wide, 0, held, k, dtype)
        for v in T.unroll(vector):
            if layer:
                s.values[0, v] = wide[0, v] * s.factor[0] + s.shift[0]
            else:
                s.values[0, v] = wide[0, v] * s.factor[0]
        for column in s.columns:
            move.widen(wide, 0, column.buffer, column_at, column.line.kind)
            for v in T.unroll(vector):
                if column.name == "bias":
                    s.values[0, v] = s.values[0, v] + wide[0, v]
                elif build.offset:
                    s.values[0, v] = s.values[0, v] * (wide[0, v] + s.a.offset)
                else:
                    s.values[0, v] = s.values[0, v] * wide[0, v]
        move.write_rows(s.values, 0, s.largest, at, i)

    return SimpleNamespace(
        size=4 * chains,
        begin=begin,
        add=add,
        take=take,
        find=find,
        find_exactly=find_exactly,
        join=join,
        join_exactly=join_exactly,
        write=write,
    )
