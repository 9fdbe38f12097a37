"""CUDA functions by which the blocks of a cluster find the factors of several rows at once."""

__all__ = ["SOURCE"]

# Stands behind device.SOURCE and joint.SOURCE.
SOURCE = r"""
#ifndef TILEOPS_NORM_EXCHANGE  // a program of two kernels has this text twice
#define TILEOPS_NORM_EXCHANGE
namespace rows {

// Sums of squares of kRows rows. Its memory is its own, so that TileLang, which cannot know who
// else writes there, gives its place to nothing else.
template <int kRows, int kWarps, int kCluster> struct Findings {
  // Each row has as many lanes of a warp: what is no part of 32 would send what nobody expects.
  static_assert(kRows == 1 || kRows == 2 || kRows == 4 || kRows == 8);
  float own[kRows][kWarps];    // what the block's warps found
  float box[kRows][kCluster];  // what the blocks did
  alignas(8) uint64_t barrier;
};

template <int kRows, int kWarps, int kCluster>
__device__ __forceinline__ Findings<kRows, kWarps, kCluster> &findings() {
  __shared__ Findings<kRows, kWarps, kCluster> found;
  return found;
}

// The block runs, and expects what join_rows will send it.
template <int kRows, int kWarps, int kCluster>
__device__ __forceinline__ void announce_rows(int thread) {
  auto &s = findings<kRows, kWarps, kCluster>();
  if (thread == 0) clusters::expect(&s.barrier, sizeof(s.box), s.box);
  clusters::arrive();
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

// factors: what the thread added up of each row, then 1 / sqrt(mean of squares + eps).
template <int kRows, int kWarps, int kCluster>
__device__ __forceinline__ void join_rows(float *factors, float n, float eps, int thread,
                                          int rank) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  auto &s = findings<kRows, kWarps, kCluster>();
  constexpr int kLanes = 32 / kRows;
  const int lane = thread % 32, warp = thread / 32, row = lane / kLanes, place = lane % kLanes;
  float square = sum_spread<kRows, 32>(factors, lane);
  if (place == 0) s.own[row][warp] = square;
  asm volatile("bar.sync 0;" : : : "memory");
  if (warp == 0) {
    square = sum_of<kLanes, kWarps>(s.own[row], place);
    for (int to = place; to < kCluster; to += kLanes) {
      clusters::send(&s.box[row][rank], &s.barrier, to, square);
    }
  }
  clusters::await(&s.barrier);
  square = rsqrtf(sum_of<kLanes, kCluster>(s.box[row], place) / n + eps);
#pragma unroll
  for (int r = 0; r < kRows; ++r) factors[r] = __shfl_sync(0xffffffffu, square, r * kLanes);
#endif
}

}  // namespace rows
#endif
"""
