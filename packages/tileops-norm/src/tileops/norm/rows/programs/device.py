"""CUDA functions that the row programs call: accesses with cache hints, float8.

TileLang 0.1.15 has no spelling for these. The text stands before TileLang's own headers in a
program's source, so it uses CUDA's alone.
"""

from tileops.norm import clusters

__all__ = ["SOURCE"]

SOURCE = (
    clusters.SOURCE
    + r"""
#ifndef TILEOPS_NORM_ROWS  // a program of two kernels has this text twice
#define TILEOPS_NORM_ROWS
#include <cstdint>
#include <cuda_fp8.h>

namespace rows {

// How an access treats the caches, as configs.HINTS numbers them.
enum Hint { kNone, kConst, kNoL1, kConstNoL1, kStreaming, kFirst, kLast, kNoL1First };

template <int kHint> __device__ __forceinline__ uint64_t policy() {
  uint64_t bits;
  if constexpr (kHint == kLast) {
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(bits));
  } else {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(bits));
  }
  return bits;
}

template <int kBytes> struct Word;
template <> struct Word<1> { using Type = uint8_t; };
template <> struct Word<2> { using Type = uint16_t; };
template <> struct Word<4> { using Type = uint32_t; };
template <> struct Word<8> { using Type = uint2; };
template <> struct Word<16> { using Type = uint4; };

// Loads and stores are spelt out as ones of global memory: of an address that came as a number the
// compiler knows no more than that it points somewhere. Those of x keep their order with the
// stores, which may write the same memory. Those of memory that nobody writes are free to be moved.
#define ROWS_LOAD(text, ...)                                                                       \
  if constexpr (kFree) {                                                                           \
    asm("ld.global" text " {%0, %1, %2, %3}, [%4]" __VA_ARGS__);                                   \
  } else {                                                                                         \
    asm volatile("ld.global" text " {%0, %1, %2, %3}, [%4]" __VA_ARGS__);                          \
  }
#define ROWS_TO : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from)

template <int kHint, bool kFree> __device__ __forceinline__ uint4 load16(int64_t from) {
  uint4 v;
  if constexpr (kHint == kNone) {
    ROWS_LOAD(".v4.u32", ";" ROWS_TO)
  } else if constexpr (kHint == kConst) {
    ROWS_LOAD(".nc.v4.u32", ";" ROWS_TO)
  } else if constexpr (kHint == kNoL1) {
    ROWS_LOAD(".L1::no_allocate.v4.u32", ";" ROWS_TO)
  } else if constexpr (kHint == kConstNoL1) {
    ROWS_LOAD(".nc.L1::no_allocate.v4.u32", ";" ROWS_TO)
  } else if constexpr (kHint == kStreaming) {
    ROWS_LOAD(".cs.v4.u32", ";" ROWS_TO)
  } else {
    const uint64_t bits = policy<kHint>();
    if constexpr (kHint == kFirst) {
      ROWS_LOAD(".L1::evict_first.L2::cache_hint.v4.u32", ", %5;" ROWS_TO, "l"(bits))
    } else if constexpr (kHint == kLast) {
      ROWS_LOAD(".L1::evict_last.L2::cache_hint.v4.u32", ", %5;" ROWS_TO, "l"(bits))
    } else {
      ROWS_LOAD(".L1::no_allocate.L2::cache_hint.v4.u32", ", %5;" ROWS_TO, "l"(bits))
    }
  }
  return v;
}

// to = kBytes of registers, from = the address of global memory, a multiple of kBytes (of 16 where
// there are more).
template <int kBytes, int kHint, bool kFree>
__device__ __forceinline__ void get(void *to, int64_t from) {
  if constexpr (kBytes >= 16) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      reinterpret_cast<uint4 *>(to)[i] = load16<kHint, kFree>(from + 16 * i);
    }
  } else if constexpr (kBytes == 8) {
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    *reinterpret_cast<uint2 *>(to) = v;
  } else if constexpr (kBytes == 4) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(*reinterpret_cast<uint32_t *>(to)) : "l"(from));
  } else {
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(*reinterpret_cast<uint16_t *>(to)) : "l"(from));
  }
}

// to = the address of global memory, a multiple of kBytes, from = kBytes of registers.
template <int kBytes, int kHint> __device__ __forceinline__ void put(int64_t to, const void *from) {
  if constexpr (kBytes == 16) {
    const uint4 v = *reinterpret_cast<const uint4 *>(from);
    if constexpr (kHint == kNone) {
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                   : : "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    } else if constexpr (kHint == kStreaming) {
      asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                   : : "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    } else {
      asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                   : : "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy<kHint>())
                   : "memory");
    }
  } else if constexpr (kBytes == 8) {
    const uint2 v = *reinterpret_cast<const uint2 *>(from);
    if constexpr (kHint == kNone) {
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" : : "l"(to), "r"(v.x), "r"(v.y) : "memory");
    } else if constexpr (kHint == kStreaming) {
      asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};"
                   : : "l"(to), "r"(v.x), "r"(v.y) : "memory");
    } else {
      asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;"
                   : : "l"(to), "r"(v.x), "r"(v.y), "l"(policy<kHint>()) : "memory");
    }
  } else if constexpr (kBytes == 4) {
    const uint32_t v = *reinterpret_cast<const uint32_t *>(from);
    asm volatile("st.global.u32 [%0], %1;" : : "l"(to), "r"(v) : "memory");
  } else if constexpr (kBytes == 2) {
    const uint16_t v = *reinterpret_cast<const uint16_t *>(from);
    asm volatile("st.global.u16 [%0], %1;" : : "l"(to), "h"(v) : "memory");
  } else {
    const uint32_t v = *reinterpret_cast<const uint8_t *>(from);
    asm volatile("st.global.u8 [%0], %1;" : : "l"(to), "r"(v) : "memory");
  }
}

// to = the kWords words of r that begin at byte ``shift`` of it, a multiple of 2 below 16.
template <int kWords>
__device__ __forceinline__ void realign(void *to, uint32_t *r, uint32_t shift) {
#pragma unroll
  for (int i = 0; i < kWords + 2; ++i) r[i] = shift & 8 ? r[i + 2] : r[i];
#pragma unroll
  for (int i = 0; i < kWords + 1; ++i) r[i] = shift & 4 ? r[i + 1] : r[i];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    reinterpret_cast<uint32_t *>(to)[i] = __funnelshift_r(r[i], r[i + 1], (shift & 2) * 8);
  }
}

// As get of 16 bytes or more, where from is a multiple of the element's size only: the aligned
// 16-byte words that hold any of it are read, and shifted. Each holds a byte that was asked for.
template <int kBytes, int kHint, bool kFree>
__device__ __forceinline__ void get_shifted(void *to, int64_t from) {
  constexpr int kWords = kBytes / 4;
  const int64_t base = from & ~15ll;
  const uint32_t shift = from & 15;
  uint32_t r[kWords + 4];
#pragma unroll
  for (int i = 0; i <= kWords / 4; ++i) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (i < kWords / 4 || shift != 0) v = load16<kHint, kFree>(base + 16 * i);
    r[4 * i] = v.x, r[4 * i + 1] = v.y, r[4 * i + 2] = v.z, r[4 * i + 3] = v.w;
  }
  realign<kWords>(to, r, shift);
}

// As get_shifted of a row in [begin, end), of elements of kItem bytes, whose ends it reads no byte
// past: what is outside is zero.
template <int kBytes, int kItem, int kHint>
__device__ __forceinline__ void get_clamped(void *to, int64_t from, int64_t begin, int64_t end) {
  using Type = typename Word<kItem>::Type;
  if (from - 15 >= begin && from + kBytes + 15 <= end) {
    get_shifted<kBytes, kHint, true>(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / kItem; ++i) {
      const int64_t at = from + i * kItem;
      Type v = 0;
      if (at >= begin && at < end) get<kItem, kNone, true>(&v, at);
      reinterpret_cast<Type *>(to)[i] = v;
    }
  }
}

// The end of a row: of 16 bytes the elements from low up to high are read, the others are zeros.
// Elements have kItem bytes, and are read one by one: the rest may be outside of the tensor.
template <int kItem>
__device__ __forceinline__ void get_edge(void *to, int64_t from, int low, int high) {
  using Type = typename Word<kItem>::Type;
#pragma unroll
  for (int i = 0; i < 16 / kItem; ++i) {
    Type v = 0;
    if (i >= low && i < high) get<kItem, kNone, false>(&v, from + i * kItem);
    reinterpret_cast<Type *>(to)[i] = v;
  }
}

// Of kCount elements of kItem bytes those from low up to high are written.
template <int kCount, int kItem>
__device__ __forceinline__ void put_edge(int64_t to, const void *from, int low, int high) {
  using Type = typename Word<kItem>::Type;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i >= low && i < high) {
      put<kItem, kNone>(to + i * kItem, reinterpret_cast<const Type *>(from) + i);
    }
  }
}

// Nothing changes here, since a square has no sign; but the compiler cannot know that, and converts
// the elements anew in each pass. Else it would keep each as a float, in twice the registers. It
// cannot do so before ``known`` is known. (Where that is NaN, all of the row will be.)
template <int kBytes> __device__ __forceinline__ void keep_packed(void *registers, float known) {
  const uint32_t nothing = __float_as_uint(known * known) >> 31;
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) reinterpret_cast<uint32_t *>(registers)[i] ^= nothing;
}

// As keep_packed, for numbers that widen makes floats of: bits that are shifted and masked come
// through an exclusive or as they are, and so their floats were kept, in memory. No arithmetic
// makes a NaN of these bits.
template <int kBytes> __device__ __forceinline__ void keep_narrow(void *registers, float known) {
  const uint32_t nothing = __float_as_uint(known) == 0x7f812345u;
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) reinterpret_cast<uint32_t *>(registers)[i] += nothing;
}

// kCount numbers of bfloat16 as floats, by one instruction each: the compiler takes three for two.
template <int kCount> __device__ __forceinline__ void widen(float *to, const void *from) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const uint32_t pair = reinterpret_cast<const uint32_t *>(from)[i];
    to[2 * i] = __uint_as_float(pair << 16);
    to[2 * i + 1] = __uint_as_float(pair & 0xffff0000u);
  }
}

// NaN stays NaN, and so it does in float8: what is past 448 becomes 448.
__device__ __forceinline__ float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// The largest over each kLanes threads of a warp, of numbers without a sign: those are in order as
// integers too, where NaN is the largest.
template <int kLanes> __device__ __forceinline__ float largest_of_lanes(float value) {
  uint32_t bits = __float_as_uint(value);
  if constexpr (kLanes == 32) {
    bits = __reduce_max_sync(0xffffffffu, bits);
  } else {
#pragma unroll
    for (int k = 1; k < kLanes; k *= 2) {
      const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, k);
      bits = bits < other ? other : bits;
    }
  }
  return __uint_as_float(bits);
}

// Whether a row's largest is infinite or NaN; rows that share a warp have one answer.
template <int kLanes> __device__ __forceinline__ bool is_beyond(float largest) {
  const bool beyond = !(largest <= 3.402823466e38f);
  if constexpr (kLanes < 32) return __any_sync(0xffffffffu, beyond);
  return beyond;
}

template <int kCount>
__device__ __forceinline__ void to_float8(void *to, const float *from, float factor) {
  if constexpr (kCount == 1) {
    *reinterpret_cast<uint8_t *>(to) =
        __nv_cvt_float_to_fp8(from[0] * factor, __NV_SATFINITE, __NV_E4M3);
  } else {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float2 pair = make_float2(from[2 * i] * factor, from[2 * i + 1] * factor);
      reinterpret_cast<uint16_t *>(to)[i] =
          __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
    }
  }
}

// The row of a modulation for row of x, of m: rows in turn share one. Most calls have one sample,
// or a modulation of each row's own; a division of 64 bits takes as long as a short row does.
__device__ __forceinline__ int64_t shared_row(int64_t row, int64_t rows, int64_t m) {
  if (rows >= m) return 0;
  if (rows == 1) return row;
  if (m <= 0xffffffffll) return static_cast<uint32_t>(row) / static_cast<uint32_t>(rows);
  return row / rows;
}

// mean = that of the warp's ``cells`` numbers, of which each thread has the sum in ``mean``;
// distance = the sum of their distances from it. What an addition rounds off is kept by Knuth's
// two-sum, so that all lanes get the same bits.
__device__ __forceinline__ void mean_of_warp(float *mean, float *distance, float cells) {
  float high = *mean, low = 0.0f;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, high, step);
    const float sum = high + other, part = sum - high;
    low += __shfl_xor_sync(0xffffffffu, low, step);
    low += (high - (sum - part)) + (other - part);
    high = sum;
  }
  *mean = high / fmaxf(cells, 1.0f);
  *distance = fmaf(-*mean, cells, high) + low;
}

// The largest over a row's threads: kLanes of each of kCluster blocks, which kRows rows share. Only
// those of the row need to come here. Its memory is its own, so that TileLang, which cannot know
// that they all come, plans no barrier for it.
template <int kLanes, int kRows, int kCluster>
__device__ __forceinline__ float largest_of_row(float value, int thread, int rank) {
  constexpr int kWarps = kLanes / 32;
  value = largest_of_lanes<(kLanes < 32 ? kLanes : 32)>(value);
  if constexpr (kWarps * kCluster > 1) {
    __shared__ float found[kRows * kWarps * kCluster];
    float *row = found + thread / kLanes * kWarps;
    if constexpr (kCluster > 1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      __shared__ uint64_t barrier;
      // Announced late, since few rows come here.
      if (thread == 0) clusters::expect(&barrier, kWarps * kCluster * 4, found);
      clusters::arrive();
      clusters::ready();
      if (thread % 32 < kCluster) {
        clusters::send(row + rank * kWarps + thread / 32, &barrier, thread % 32, value);
      }
      clusters::await(&barrier);
#endif
    } else {
      if (thread % 32 == 0) row[thread % kLanes / 32] = value;
      // Each row has a barrier, since others may not come; 0 is that of the block.
      const int barrier = kRows > 1 ? 1 + thread / kLanes : 0;
      asm volatile("bar.sync %0, %1;" : : "r"(barrier), "n"(kLanes) : "memory");
    }
    for (int k = 0; k < kWarps * kCluster; ++k) value = larger(value, row[k]);
  }
  return value;
}

}  // namespace rows
#endif
"""
)
