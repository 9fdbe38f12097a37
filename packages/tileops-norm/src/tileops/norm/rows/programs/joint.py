"""CUDA functions by which a block finds the statistics of several rows at once.

A warp that adds up one number of each lane takes five shuffles, each of which waits for the one
before. Of several rows it adds up all numbers together, half of its lanes for half of the rows,
in little more; and the block waits but once for what its warps found of all its rows.

Each addition has the same two operands in all lanes that make it, so that these agree on every
bit; and a row's additions do not depend on its place among the others.
"""

__all__ = ["SOURCE"]

# Stands behind device.SOURCE.
SOURCE = r"""
#ifndef TILEOPS_NORM_JOINT  // a program of two kernels has this text twice
#define TILEOPS_NORM_JOINT
namespace rows {

// The sum over each kLanes neighbours of what they have of each row: that of row
// place / (kLanes / kRows), of a lane's place among them. Half of the lanes take half of the rows,
// hand over what they have of the others, and so on.
template <int kRows, int kLanes>
__device__ __forceinline__ float sum_spread(const float *values, int lane) {
  static_assert(kRows <= kLanes);
  float v[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) v[r] = values[r];
#pragma unroll
  for (int half = kRows / 2; half >= 1; half /= 2) {
    const int step = kLanes * half / kRows;
    const bool upper = lane & step;
#pragma unroll
    for (int r = 0; r < half; ++r) {
      const float given = upper ? v[r] : v[r + half];
      v[r] = (upper ? v[r + half] : v[r]) + __shfl_xor_sync(0xffffffffu, given, step);
    }
  }
#pragma unroll
  for (int step = kLanes / kRows / 2; step >= 1; step /= 2) {
    v[0] += __shfl_xor_sync(0xffffffffu, v[0], step);
  }
  return v[0];
}

// values[r] = what the lanes of row r have, of each kLanes neighbours.
template <int kRows, int kLanes>
__device__ __forceinline__ void to_all_lanes(float *values, float value) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    values[r] = __shfl_sync(0xffffffffu, value, r * (kLanes / kRows), kLanes);
  }
}

// values[r] = its sum over each kLanes neighbours.
template <int kRows, int kLanes>
__device__ __forceinline__ void sum_of_lanes(float *values, int lane) {
  if constexpr (kRows > 1 && kRows <= kLanes) {
    to_all_lanes<kRows, kLanes>(values, sum_spread<kRows, kLanes>(values, lane));
  } else {
#pragma unroll
    for (int step = kLanes / 2; step >= 1; step /= 2) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        values[r] += __shfl_xor_sync(0xffffffffu, values[r], step);
      }
    }
  }
}

// Findings of so few warps are added up by every thread: numbers that all read are read faster than
// they are handed from lane to lane.
constexpr int kFew = 2;

// How a warp joins what warps found: each of kRows rows has as many lanes, which take kParts
// findings in turns. Lanes that are more than a row has findings do what the first ones do.
template <int kRows, int kParts> struct Joining {
  static constexpr int kLanes = 32 / kRows;
  static constexpr int width() {
    int lanes = 1;
    while (lanes < kLanes && lanes < kParts) lanes *= 2;
    return lanes;
  }
  static constexpr int kWidth = width();
  static constexpr int kTurns = (kParts + kWidth - 1) / kWidth;
  int row, place;
  __device__ explicit Joining(int lane) : row(lane / kLanes), place(lane % kLanes) {}

  // Which finding the lane takes in a turn; it may be past the last.
  __device__ __forceinline__ int part(int turn) const { return turn * kWidth + place % kWidth; }

  // That of the lane's row.
  __device__ __forceinline__ float of(const float *values) const {
    float value = values[0];
#pragma unroll
    for (int r = 1; r < kRows; ++r) value = row == r ? values[r] : value;
    return value;
  }

  // The sum of what the row's lanes have.
  static __device__ __forceinline__ float sum(float value) {
#pragma unroll
    for (int step = kWidth / 2; step >= 1; step /= 2) {
      value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
  }
};

// factors: a thread's sums of squares of kRows rows, then 1 / sqrt(mean of squares + eps). A row
// has kLanes threads, and a block kGroups times as many.
template <int kRows, int kLanes, int kGroups>
__device__ __forceinline__ void join_squares(float *factors, float n, float eps, int thread) {
  constexpr int kWarps = kLanes / 32;
  if constexpr (kWarps <= 1) {
    sum_of_lanes<kRows, (kLanes < 32 ? kLanes : 32)>(factors, thread % 32);
#pragma unroll
    for (int r = 0; r < kRows; ++r) factors[r] = rsqrtf(factors[r] / n + eps);
  } else {
    alignas(16) __shared__ float found[kGroups][kRows][kWarps];
    using Each = Joining<kRows, kWarps>;
    const Each joining(thread % 32);
    const int group = thread / kLanes, warp = thread % kLanes / 32;
    const float square = sum_spread<kRows, 32>(factors, thread % 32);
    if (joining.place == 0) found[group][joining.row][warp] = square;
    __syncthreads();
    if constexpr (kWarps <= kFew) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < kWarps; ++k) sum += found[group][r][k];
        factors[r] = rsqrtf(sum / n + eps);
      }
      return;
    }
    float sum = 0.0f;
#pragma unroll
    for (int turn = 0; turn < Each::kTurns; ++turn) {
      const int k = joining.part(turn);
      if (k < kWarps) sum += found[group][joining.row][k];
    }
    sum = rsqrtf(Each::sum(sum) / n + eps);
    to_all_lanes<kRows, 32>(factors, sum);
  }
}

// means = those of what a warp has of kRows rows, ``cells`` numbers each, of which they are the
// thread's sums.
template <int kRows, int kLanes>
__device__ __forceinline__ void means_of_warp(float *means, float cells, int thread) {
  sum_of_lanes<kRows, (kLanes < 32 ? kLanes : 32)>(means, thread % 32);
#pragma unroll
  for (int r = 0; r < kRows; ++r) means[r] = means[r] / fmaxf(cells, 1.0f);
}

// A row's variance from the sum of the squared distances from a mean, which the sum of the
// distances corrects. Rounding may leave that of a constant row just below zero; NaN stays NaN.
template <bool kCorrected>
__device__ __forceinline__ float correct(float square, float distance, float n, float *low) {
  if constexpr (kCorrected) {
    *low = distance / n;
    square -= *low * distance;
    square = square < 0.0f ? 0.0f : square;
  }
  return square;
}

// means + lows = the rows' means, factors = 1 / sqrt(variance + eps), from what a thread's warp
// found: the means of its ``cells`` numbers, and the thread's sums of the distances from them, and
// of their squares, in ``factors``. Where kEven, all warps have as many. See statistics.py.
template <int kRows, int kLanes, int kGroups, bool kCorrected, bool kEven>
__device__ __forceinline__ void join_distances(float *means, float *lows, float *distances,
                                               float *factors, float cells, float n, float eps,
                                               int thread) {
  constexpr int kWarps = kLanes / 32;
  if constexpr (kWarps <= 1) {
    constexpr int kWidth = kLanes < 32 ? kLanes : 32;
    if constexpr (kCorrected) sum_of_lanes<kRows, kWidth>(distances, thread % 32);
    sum_of_lanes<kRows, kWidth>(factors, thread % 32);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float square = correct<kCorrected>(factors[r], distances[r], n, &lows[r]);
      factors[r] = rsqrtf(square / n + eps);
    }
  } else {
    using Each = Joining<kRows, kWarps>;
    alignas(16) __shared__ float found[kGroups][4][kRows][kWarps];
    const Each joining(thread % 32);
    const int group = thread / kLanes, warp = thread % kLanes / 32;
    float distance = 0.0f;
    if constexpr (kCorrected) distance = sum_spread<kRows, 32>(distances, thread % 32);
    float square = sum_spread<kRows, 32>(factors, thread % 32);
    float mean = joining.of(means);
    if (joining.place == 0) {
      found[group][0][joining.row][warp] = mean;
      found[group][1][joining.row][warp] = square;
      if constexpr (kCorrected) found[group][2][joining.row][warp] = distance;
      if constexpr (!kEven) found[group][3][joining.row][warp] = cells;
    }
    __syncthreads();
    if constexpr (kWarps <= kFew) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        mean = square = distance = 0.0f;
#pragma unroll
        for (int k = 0; k < kWarps; ++k) {
          mean += found[group][0][r][k] * (kEven ? cells : found[group][3][r][k]);
        }
        mean = mean / n;
#pragma unroll
        for (int k = 0; k < kWarps; ++k) {
          const float gap = found[group][0][r][k] - mean;
          const float weighted = (kEven ? cells : found[group][3][r][k]) * gap;
          const float twice = kCorrected ? 2.0f * found[group][2][r][k] : 0.0f;
          square += found[group][1][r][k] + gap * (twice + weighted);
          if constexpr (kCorrected) distance += found[group][2][r][k] + weighted;
        }
        means[r] = mean;
        factors[r] = rsqrtf(correct<kCorrected>(square, distance, n, &lows[r]) / n + eps);
      }
      return;
    }
    float each[Each::kTurns][4];
    mean = 0.0f;
#pragma unroll
    for (int turn = 0; turn < Each::kTurns; ++turn) {
      const int k = joining.part(turn);
#pragma unroll
      for (int kind = 0; kind < 4; ++kind) {
        const bool sent = kind < 2 || (kind == 2 ? kCorrected : !kEven);
        each[turn][kind] = k < kWarps && sent ? found[group][kind][joining.row][k] : 0.0f;
      }
      if (kEven && k < kWarps) each[turn][3] = cells;
      mean += each[turn][0] * each[turn][3];
    }
    mean = Each::sum(mean) / n;
    square = distance = 0.0f;
#pragma unroll
    for (int turn = 0; turn < Each::kTurns; ++turn) {
      const float gap = each[turn][0] - mean;
      square += each[turn][1] + gap * (2.0f * each[turn][2] + each[turn][3] * gap);
      if constexpr (kCorrected) distance += each[turn][2] + each[turn][3] * gap;
    }
    square = Each::sum(square);
    float low = 0.0f;
    if constexpr (kCorrected) distance = Each::sum(distance);
    square = rsqrtf(correct<kCorrected>(square, distance, n, &low) / n + eps);
    to_all_lanes<kRows, 32>(means, mean);
    to_all_lanes<kRows, 32>(factors, square);
    if constexpr (kCorrected) to_all_lanes<kRows, 32>(lows, low);
  }
}

}  // namespace rows
#endif
"""
