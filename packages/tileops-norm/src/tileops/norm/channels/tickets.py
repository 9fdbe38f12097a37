"""CUDA functions by which the blocks of one launch pass work and numbers on to each other.

A block takes a *ticket*, and does what the ticket stands for: the blocks of a launch start in no
order that is promised, but tickets are given out in the order in which blocks start. So whatever
has a smaller ticket runs already or has ended.

A unit's parts are visited twice, for their statistics and to be normalized: ``turn`` says of a
ticket which part it is, and which visit.

A *slot* holds a pair of numbers, or nothing yet: all its bits are set. The second number's sign is
not passed on, so that no pair looks like nothing, whatever the bits of a NaN are: it must be a
number without a sign, or a NaN.
"""

__all__ = ["SOURCE", "TURN"]

#: Plain C: which part a ticket stands for, doubled, and 1 more where it is the second visit. Of
#: ``total`` parts the first ``lead`` have their first visit at the start; from there second and
#: first visits take turns, until no first ones are left. The second visit of part ``p`` comes
#: behind the first ones of all parts below ``p + lead``.
TURN = r"""
static __device__ __forceinline__ unsigned tickets_turn(unsigned ticket, unsigned total,
                                                        unsigned lead) {
  if (ticket < lead) return 2 * ticket;
  if (ticket >= 2 * total - lead) return 2 * (ticket - total) + 1;
  const unsigned past = ticket - lead;
  return past % 2 == 0 ? past + 1 : 2 * (past / 2 + lead);
}
"""

# TileLang 0.1.15 has no spelling for these. The text stands before TileLang's own headers in a
# program's source, so it uses CUDA's alone. Each of the functions that all threads call keeps its
# number in shared memory of its own, so a block may call it once.
SOURCE = (
    r"""
#ifndef TILEOPS_NORM_TICKETS  // a program of two kernels may have this text twice
#define TILEOPS_NORM_TICKETS
"""
    + TURN
    + r"""
namespace tickets {

// The block's turn. All threads call it.
__device__ __forceinline__ int take(void *counter, int total, int lead) {
  __shared__ unsigned got;
  if (threadIdx.x == 0) got = atomicAdd(static_cast<unsigned *>(counter), 1u);
  __syncthreads();
  return static_cast<int>(tickets_turn(got, total, lead));
}

// Whether the block is the last of ``count`` that come here. Then what thread 0 of each of them
// wrote before may be read. All threads call it.
__device__ __forceinline__ int is_last(void *counter, int count) {
  __shared__ int last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(static_cast<unsigned *>(counter), 1u) == static_cast<unsigned>(count - 1);
    __threadfence();
  }
  __syncthreads();
  return last;
}

// One thread calls it. Both numbers are one word: who sees one sees the other.
__device__ __forceinline__ void publish(void *slot, float first, float second) {
  const unsigned long long high = __float_as_uint(second) & 0x7fffffffu;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"
               : : "l"(slot), "l"(high << 32 | __float_as_uint(first)) : "memory");
}

// Waits for what is published. All threads call it.
__device__ __forceinline__ void await(const void *slot, float *first, float *second) {
  __shared__ unsigned long long got;
  if (threadIdx.x == 0) {
    unsigned long long both;
    do {
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(both) : "l"(slot) : "memory");
    } while (both == ~0ull);
    got = both;
  }
  __syncthreads();
  *first = __uint_as_float(static_cast<unsigned>(got));
  *second = __uint_as_float(static_cast<unsigned>(got >> 32));
}

}  // namespace tickets
#endif
"""
)
