"""CUDA functions by which the blocks of a cluster exchange numbers.

``barrier.cluster`` alone would do, but its release is a ``MEMBAR`` at the level of the device in
every thread, and its acquire discards L1. Numbers that are sent to an mbarrier, which counts their
bytes, need neither: RMSNorm's rows of 65536 bf16 on an H200, one cluster of 8 blocks a row, took
261 µs so, and 318 µs with ``barrier.cluster`` (torch.add: 252).

A block calls ``expect`` in one thread and ``arrive`` in all, later ``ready`` in all; then any of
its threads may ``send`` to any block, and ``await`` returns when all that was expected is there. An
exchange takes a barrier of its own. A block may end behind it: what it sent was in registers.

``await`` acquires at the scope of the block, though others sent: what it waits for lies in the
block's own shared memory, of which there are no copies. At the cluster's scope nvcc 13.0 gave the
same instructions and a ``CCTL.IVALL``, which discards L1.

TileLang 0.1.15 gives one place to buffers that are not in use at the same time, which here it
cannot know: others send before a block's own ``send``, and some threads still ``await`` when others
are past it. So ``expect`` is told of the box in which numbers arrive, and a program that goes on to
use shared memory calls ``keep`` at its end. Nor does ``await`` order what the block's other threads
read before they sent: what is written behind it has a place of its own, by a ``keep`` before those
reads.

TVM's runtime, as TileLang 0.1.15 has it, launches whatever has clusters by programmatic dependent
launch, whether its kernel knows of that or not. Such a launch may begin when all blocks of the
kernel before have ended or said ``griddepcontrol.launch_dependents``: what those wrote need not be
there yet. So each kernel of a program of clusters calls ``T.pdl_sync`` before it touches memory,
which waits for the end of the kernel before and for its writes.

TileLang tells it of the first kernel's clusters for all of a program's. Where only some are to have
them, it is not told: ``in_clusters`` tells the compiler, and all are launched plainly. That is
slower where both can be had: LayerNorm of 4096x65536 in clusters took 298 µs so, and 279 µs.
"""

__all__ = ["SOURCE", "in_clusters"]


def in_clusters(threads: int, blocks: int) -> str:
    """CUDA text for a prelude, by which the program's kernels of so many threads, and no others,
    run in clusters of ``blocks``. The last such text counts, for all kernels.

    TileLang writes each kernel's threads as launch bounds.
    """
    return f"""
#ifdef __CUDACC__
#undef __launch_bounds__
#define __launch_bounds__(threads, ...) \\
  __attribute__((launch_bounds(threads, __VA_ARGS__))) \\
  __attribute__((cluster_dims((threads) == {threads} ? {blocks} : 1, 1, 1)))
#endif
"""


# TileLang 0.1.15 has no spelling for these. The text stands before TileLang's own headers in a
# program's source, so it uses CUDA's alone.
SOURCE = r"""
#if !defined(TILEOPS_NORM_CLUSTERS) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define TILEOPS_NORM_CLUSTERS  // a program of two kernels has this text twice
namespace clusters {

__device__ __forceinline__ unsigned address(const void *p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// ``bytes`` will be sent to this block's box. One thread says so, before its block arrives.
__device__ __forceinline__ void expect(void *barrier, int bytes, const void *) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"(address(barrier)), "r"(bytes) : "memory");
}

// What a block did before it arrived is known to the others by the fence above alone.
__device__ __forceinline__ void arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory");
}

// Behind it every block of the cluster runs, and expects what is sent to it.
__device__ __forceinline__ void ready() {
  asm volatile("barrier.cluster.wait.aligned;" : : : "memory");
}

// ``value`` to the same place of the block ``rank``.
__device__ __forceinline__ void send(void *place, void *barrier, int rank, float value) {
  unsigned there, its;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there) : "r"(address(place)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(its) : "r"(address(barrier)), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               : : "r"(there), "r"(__float_as_uint(value)), "r"(its) : "memory");
}

// Waits for all that this block expects.
__device__ __forceinline__ void await(void *barrier) {
  unsigned done = 0;
  while (!done) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}" : "=r"(done) : "r"(address(barrier)) : "memory");
  }
}

// The places of the barrier and of the box had no other use up to here.
__device__ __forceinline__ void keep(const void *, const void *) {}

}  // namespace clusters
#endif
"""
