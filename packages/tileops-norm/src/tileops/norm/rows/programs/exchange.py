"""CUDA functions by which the blocks of a cluster find the statistics of several rows at once."""

__all__ = ["SOURCE"]

# Stands behind device.SOURCE.
SOURCE = r"""
#ifndef TILEOPS_NORM_EXCHANGE  // a program of two kernels has this text twice
#define TILEOPS_NORM_EXCHANGE
namespace rows {

// What is known of kRows rows: of the squares, and with a mean also that. Its memory is its own, so
// that TileLang, which cannot know who else writes there, gives its place to nothing else.
template <int kRows, int kWarps, int kCluster, bool kMean> struct Findings {
  float own[1 + kMean][kRows][kWarps];    // what the block's warps found
  float box[1 + kMean][kRows][kCluster];  // what the blocks did
  alignas(8) uint64_t barrier;
};

template <int kRows, int kWarps, int kCluster, bool kMean>
__device__ __forceinline__ Findings<kRows, kWarps, kCluster, kMean> &findings() {
  __shared__ Findings<kRows, kWarps, kCluster, kMean> found;
  return found;
}

// The block runs, and expects what join_rows will send it.
template <int kRows, int kWarps, int kCluster, bool kMean>
__device__ __forceinline__ void announce_rows(int thread) {
  auto &s = findings<kRows, kWarps, kCluster, kMean>();
  if (thread == 0) clusters::expect(&s.barrier, sizeof(s.box), s.box);
  clusters::arrive();
}

// The sum over a warp's lanes of what each has of a row: that of row lane / (32 / kRows). Half of
// the lanes take half of the rows, hand over what they have of the others, and so on.
template <int kRows> __device__ __forceinline__ float sum_of_rows(const float *values, int lane) {
  float v[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) v[r] = values[r];
#pragma unroll
  for (int half = kRows / 2; half >= 1; half /= 2) {
    const int step = 16 * half / (kRows / 2);
    const bool upper = lane & step;
#pragma unroll
    for (int r = 0; r < half; ++r) {
      const float given = upper ? v[r] : v[r + half];
      v[r] = (upper ? v[r + half] : v[r]) + __shfl_xor_sync(0xffffffffu, given, step);
    }
  }
#pragma unroll
  for (int step = 16 / kRows; step >= 1; step /= 2) {
    v[0] += __shfl_xor_sync(0xffffffffu, v[0], step);
  }
  return v[0];
}

// Over the kLanes neighbours of a row.
template <int kLanes> __device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
  for (int step = kLanes / 2; step >= 1; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

// What kCount parts of a row found, of ``cells`` elements each: the mean of all, and the sum of the
// squares of the distances from it, by the formula of Chan, Golub and LeVeque; or that of squares.
template <int kLanes, int kCount, bool kMean>
__device__ __forceinline__ void join(const float *squares, const float *means, int place,
                                     float cells, float &mean, float &square) {
  mean = square = 0.0f;
  if constexpr (kMean) {
    for (int k = place; k < kCount; k += kLanes) mean += means[k];
    mean = sum_of_lanes<kLanes>(mean) / kCount;
  }
  for (int k = place; k < kCount; k += kLanes) {
    square += squares[k];
    if constexpr (kMean) square += cells * (means[k] - mean) * (means[k] - mean);
  }
  square = sum_of_lanes<kLanes>(square);
}

// factors: what the thread added up of each row, then 1 / sqrt(mean of squares + eps). means: what
// its warp's distances are from, then each row's mean. Every warp has ``cells`` elements of a row.
template <int kRows, int kWarps, int kCluster, bool kMean>
__device__ __forceinline__ void join_rows(float *means, float *factors, float cells, float n,
                                          float eps, int thread, int rank) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  auto &s = findings<kRows, kWarps, kCluster, kMean>();
  constexpr int kLanes = 32 / kRows;
  const int lane = thread % 32, warp = thread / 32, row = lane / kLanes, place = lane % kLanes;
  float mean = 0.0f, square = sum_of_rows<kRows>(factors, lane);
  if (place == 0) {
    s.own[0][row][warp] = square;
    if constexpr (kMean) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) mean = r == row ? means[r] : mean;
      s.own[1][row][warp] = mean;
    }
  }
  asm volatile("bar.sync 0;" : : : "memory");
  if (warp == 0) {
    join<kLanes, kWarps, kMean>(s.own[0][row], s.own[kMean][row], place, cells, mean, square);
    for (int to = place; to < kCluster; to += kLanes) {
      clusters::send(&s.box[0][row][rank], &s.barrier, to, square);
      if constexpr (kMean) clusters::send(&s.box[1][row][rank], &s.barrier, to, mean);
    }
  }
  clusters::await(&s.barrier);
  join<kLanes, kCluster, kMean>(s.box[0][row], s.box[kMean][row], place, cells * kWarps, mean,
                                square);
  square = rsqrtf(square / n + eps);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    factors[r] = __shfl_sync(0xffffffffu, square, r * kLanes);
    if constexpr (kMean) means[r] = __shfl_sync(0xffffffffu, mean, r * kLanes);
  }
#endif
}

}  // namespace rows
#endif
"""
