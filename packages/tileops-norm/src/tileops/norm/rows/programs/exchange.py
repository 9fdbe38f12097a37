"""CUDA functions by which the blocks of a cluster add up several numbers at once."""

__all__ = ["SOURCE"]

# Stands behind device.SOURCE and joint.SOURCE.
SOURCE = r"""
#ifndef TILEOPS_NORM_EXCHANGE  // a program of two kernels has this text twice
#define TILEOPS_NORM_EXCHANGE
namespace rows {

// Sums of kRows kinds: of rows, or two of each; those of another turn are others. Its memory is its
// own, so that TileLang, which cannot know who else writes there, gives its place to nothing else.
template <int kRows, int kWarps, int kCluster, int kTurn> struct Findings {
  // Each row has as many lanes of a warp: what is no part of 32 would send what nobody expects.
  static_assert(kRows == 1 || kRows == 2 || kRows == 4 || kRows == 8);
  float own[kRows][kWarps];    // what the block's warps found
  float box[kRows][kCluster];  // what the blocks did
  alignas(8) uint64_t barrier;
};

template <int kRows, int kWarps, int kCluster, int kTurn>
__device__ __forceinline__ Findings<kRows, kWarps, kCluster, kTurn> &findings() {
  __shared__ Findings<kRows, kWarps, kCluster, kTurn> found;
  return found;
}

// The block expects what join_rows will send it.
template <int kRows, int kWarps, int kCluster, int kTurn>
__device__ __forceinline__ void expect_rows(int thread) {
  auto &s = findings<kRows, kWarps, kCluster, kTurn>();
  if (thread == 0) clusters::expect(&s.barrier, sizeof(s.box), s.box);
}

// Of kCount numbers, by the kLanes neighbours of a row.
template <int kLanes, int kCount>
__device__ __forceinline__ float sum_of(const float *numbers, int place) {
  float sum = 0.0f;
  for (int k = place; k < kCount; k += kLanes) sum += numbers[k];
#pragma unroll
  for (int step = kLanes / 2; step >= 1; step /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
  }
  return sum;
}

// sums: what the thread added up of each row, then what all did.
template <int kRows, int kWarps, int kCluster, int kTurn>
__device__ __forceinline__ void join_rows(float *sums, int thread, int rank) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  auto &s = findings<kRows, kWarps, kCluster, kTurn>();
  constexpr int kLanes = 32 / kRows;
  const int lane = thread % 32, warp = thread / 32, row = lane / kLanes, place = lane % kLanes;
  float sum = sum_spread<kRows, 32>(sums, lane);
  if (place == 0) s.own[row][warp] = sum;
  asm volatile("bar.sync 0;" : : : "memory");
  if (warp == 0) {
    sum = sum_of<kLanes, kWarps>(s.own[row], place);
    for (int to = place; to < kCluster; to += kLanes) {
      clusters::send(&s.box[row][rank], &s.barrier, to, sum);
    }
  }
  clusters::await(&s.barrier);
  sum = sum_of<kLanes, kCluster>(s.box[row], place);
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = __shfl_sync(0xffffffffu, sum, r * kLanes);
#endif
}

}  // namespace rows
#endif
"""
