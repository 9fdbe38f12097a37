"""Which RMSNorm program serves a row width, and how it is laid out.

Pure Python: no torch, no TileLang. Widths are in elements, dtypes are TileLang's names.
"""

from dataclasses import dataclass
from typing import Literal

Name = Literal["rms_norm", "rms_norm_on_chip", "rms_norm_streaming"]

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4}

#: The widest row that every program here was built for and checked with.
MAX_WIDTH = 262144

#: One access moves at most 16 bytes a thread, the widest load before sm_100.
ACCESS_BYTES = 16

#: Shared memory that one block may use, bytes, by architecture (CUDA programming guide, "technical
#: specifications per compute capability"); an architecture that is not listed gets the smallest.
SHARED_BYTES = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_87": 163 * 1024,
    "sm_89": 99 * 1024,
    "sm_90a": 227 * 1024,
    "sm_100a": 227 * 1024,
    "sm_103a": 227 * 1024,
    "sm_120a": 99 * 1024,
}


#: Multiprocessors of the usual card of an architecture. Only the number of blocks hangs on it, so
#: another card of the same architecture is served as well, if not as evenly.
MULTIPROCESSORS = {"sm_80": 108, "sm_89": 142, "sm_90a": 132, "sm_100a": 148}

# The layouts below were chosen by two runs, each on an H200. A run timed its candidates by replays
# of a CUDA graph beside torch.add(x, 1, out=y), which moves the same bytes. Run 1 timed the wide
# rows' programs of commit b0364be: one block a row, plain loads. Run 2 timed those of commit
# 7e84f59, which fetch a block's next row ahead, with the number of blocks as a part of the layout;
# `rms_norm` was the same in both. Times are medians in µs, with a weight of x's dtype; brackets
# hold torch.add's time in that run. Replays of one candidate in run 2 differed by 6 % at 7 µs, by
# 3 % at 20 to 40 and by 1 % from 130 on; run 1's spread was not kept.


@dataclass(frozen=True)
class RowConfig:
    """A row in the registers of ``threads_per_row`` threads, ``rows_per_block`` rows a block.

    Attributes:
        threads_per_row: a power of two; a multiple of 32 above 32.
        rows_per_block: rows that share a block.
        vector: elements of one access.
        weight_early: whether the weight is fetched before the reduction, at the price of registers.
    """

    threads_per_row: int
    rows_per_block: int
    vector: int
    weight_early: bool

    def accesses(self, n: int) -> int:
        """Accesses that each thread makes to cover a row of ``n``."""
        return -(-n // (self.threads_per_row * self.vector))


@dataclass(frozen=True)
class OnChipConfig:
    """A row a block, held once: the first part in registers, the rest in shared memory.

    Attributes:
        threads: threads of the block.
        vector: elements of one access.
        in_registers: accesses of each thread that stay in registers.
        in_shared: accesses of each thread that go to shared memory.
        unroll: accesses that are handled together; both counts are multiples of it.
    """

    threads: int
    vector: int
    in_registers: int
    in_shared: int
    unroll: int

    def shared_bytes(self, dtype: str) -> int:
        """Shared memory that the block needs, with its warps' partial sums."""
        return self.in_shared * self.threads * self.vector * ITEMSIZE[dtype] + self.threads // 8


@dataclass(frozen=True)
class StreamingConfig:
    """A row a block: the first part in shared memory, the rest read a second time.

    Attributes:
        threads: threads of the block.
        vector: elements of one access.
        in_shared: accesses of each thread that go to shared memory; a multiple of ``unroll``.
        unroll: accesses that are handled together.
        blocks: the most blocks that are launched; each takes every ``blocks``-th row.
    """

    threads: int
    vector: int
    in_shared: int
    unroll: int
    blocks: int

    def streamed(self, n: int) -> int:
        """Accesses of each thread that are made twice, in whole groups of ``unroll``."""
        step = self.threads * self.vector
        return _whole_groups(n - self.in_shared * step, step, self.unroll)

    def shared_bytes(self, dtype: str) -> int:
        """Shared memory that the block needs, with its warps' partial sums of two rows."""
        return self.in_shared * self.threads * self.vector * ITEMSIZE[dtype] + self.threads // 4


def vector_of(n: int, dtype: str, aligned: bool) -> int:
    """The widest access, in elements, at which every row of a contiguous [M, n] matrix starts.

    ``aligned`` says that all of the call's tensors start at a multiple of 16 bytes; a caller that
    cannot say so gets single elements.
    """
    vector = ACCESS_BYTES // ITEMSIZE[dtype] if aligned else 1
    while n % vector:
        vector //= 2
    return vector


def _power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()


def choose_row_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool, arch: str = "sm_90a"
) -> RowConfig:
    """The layout of ``rms_norm`` for rows of ``n``."""
    # bf16 unless said otherwise; "late" and "early" is the weight, run 2 unless said otherwise:
    #   32768x1024 (34.3): 64 threads x 2 rows 34.1, x 1 34.3, x 4 34.4, 128 x 1 34.5, 128 x 2 35.5;
    #     run 1 (33.8): 64 x 2 34.0, 32 x 4 35.1, 16 x 8 35.5
    #   2048x4096 (6.5): 256 early 6.9, late 7.1, 128 late 6.9, early 7.0; fp16 6.6, 6.9, 6.8, 6.9
    #   32768x4096 (128.6): 64 early 130.9, 256 early 131.5; run 1 (128.0): 512 168.5
    #   2048x8192 (18.1): 256 late 19.6; run 1 (18.1): late 19.6, early 20.1, 512 22.8, 1024 35.3
    #   32768x8192 (254.5): 128 early 261.0, 256 late 261.6
    #   2048x16384 (34.0): 256 late 37.3; run 1 (33.8): late 37.3, early 47.1, 512 46.8, 1024 47.2
    #   16384x8192 fp32 (253.7): 512 late 256.1, 256 early 261.5, 256 late 262.1
    #   32768x4095, single elements (127.7): 256 early 162.4, late 166.0, 128 early 173.9;
    #     run 1 (127.4): 512 195.2, 1024 290.8
    # So: two accesses a thread until there are 256 threads, more threads only for the widest rows
    # in fp32, and the weight early while a thread's part of the row is no more than 32 bytes. To
    # have the compiler fit more blocks on a multiprocessor gained nothing anywhere (2048x4096: 6
    # blocks 6.8, 7 blocks 7.5; 2048x8192 late: 5 blocks 20.3; 32768x4096, 64 threads: 166.5).
    vector = vector_of(n, dtype, aligned)
    accesses = -(-n // vector)
    most = 512 if dtype == "float32" and vector == 4 and accesses > 4 * 256 else 256
    threads_per_row = min(_power_of_two(-(-accesses // 2)), most)
    rows_per_block = max(128 // threads_per_row, 1)
    bytes_a_thread = -(-accesses // threads_per_row) * vector * ITEMSIZE[dtype]
    return RowConfig(threads_per_row, rows_per_block, vector, weight_early=bytes_a_thread <= 32)


def choose_on_chip_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool, arch: str = "sm_90a"
) -> OnChipConfig:
    """The layout of ``rms_norm_on_chip`` for rows of ``n``."""
    # Run 1, bf16, accesses in registers + in shared memory:
    #   16384x32768 (501.9): 512 threads, 0 + 8 516.0, 4 + 4 541.8, 256 threads 537.2,
    #     1024 threads 590.8; all in registers 544.9 at best
    #   4096x65536 (251.5): 1024 threads, 4 + 4 261.8, 0 + 8 276.7, 512 threads, 4 + 12 274.9;
    #     all in registers 465.8 at best
    #   8192x131072 (1000.8): 1024 threads, 4 + 12 1081, 6 + 10 1369, 8 + 8 (spills) 1515
    # ptxas (CUDA 13.0, sm_90a) gives 0 + 8 at 512 threads 56 registers, so two blocks fit. 4 + 12
    # spills 4 bytes a thread, and 72 where a float32 weight meets bf16 rows, which was not timed.
    # Run 2, single elements, copied as here but summed from shared memory, one block a row:
    #   4096x32767 (128.5): 512 threads, groups of 8 202.4, of 4 207.8, 1024 threads 261.1;
    #     all in registers 274.5
    # Before you fetch ahead here, read what became of it in the program.
    vector = vector_of(n, dtype, aligned)
    unroll = 8 if vector == 1 else 4
    threads, in_registers = (512, 0) if n * ITEMSIZE[dtype] <= 64 * 1024 else (1024, 4)
    if vector * ITEMSIZE[dtype] < ACCESS_BYTES:
        # A single element would take a register of its own: registers hold whole accesses only.
        in_registers = 0
    in_shared = _whole_groups(n - in_registers * threads * vector, threads * vector, unroll)
    return OnChipConfig(threads, vector, in_registers, in_shared, unroll)


def choose_streaming_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool, arch: str = "sm_90a"
) -> StreamingConfig:
    """The layout of ``rms_norm_streaming`` for rows of ``n``: as much as fits in shared memory."""
    # bf16, accesses in shared memory (+ in registers, which this program no longer has):
    #   2048x262144, run 2 (504.1): 1024 threads, 12 671.6, 14 in groups of 2 729.9, 14 + 2 711.2,
    #     12 + 4 801.3, 512 threads, 24 701.7; none, one block a row 726.9
    #   run 1 (501.0): none, one block a row 738.8 (F.rms_norm 835.7)
    vector = vector_of(n, dtype, aligned)
    threads, unroll = 1024, 4
    group_bytes = threads * vector * ITEMSIZE[dtype] * unroll
    room = (shared_limit(arch) - threads // 4) // group_bytes * unroll
    in_shared = min(_whole_groups(n, threads * vector, unroll), room)
    return StreamingConfig(threads, vector, in_shared, unroll, MULTIPROCESSORS.get(arch, 128))


def _whole_groups(elements: int, step: int, unroll: int) -> int:
    """Accesses of ``step`` elements that cover ``elements``, in whole groups of ``unroll``."""
    return max(-(-elements // (step * unroll)), 0) * unroll


def shared_limit(arch: str) -> int:
    """Bytes of shared memory that one block may use on ``arch``."""
    return SHARED_BYTES.get(arch, min(SHARED_BYTES.values()))


def select(n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a") -> Name:
    """Which program serves rows of ``n`` elements of ``dtype`` on ``arch``.

    Up to 32 KiB a row lives in registers, where it took 37.3 µs at 2048x16384 in bf16 and 37.6 in
    shared memory (run 1, torch.add 33.8); at 16384x32768 it took 544.9, shared memory 516.0 (run 1,
    torch.add 501.9). Above, the row is held on the chip while its part of shared memory fits, and
    what does not fit is read a second time.

    One thing is left: at 2048x16384, shared memory that was filled by ``cp.async``, one block of
    512 threads a row and three on a multiprocessor, took 36.1 (run 2, torch.add 34.0, registers
    37.3). It is not here because only that one shape was timed, and at 16384x32768 the same took
    547.2 (run 2, torch.add 502.4) where plain loads had taken 516.0.
    """
    if n * ITEMSIZE[dtype] <= 32 * 1024:
        return "rms_norm"
    config = choose_on_chip_config(n, dtype, None, aligned, arch)
    if config.shared_bytes(dtype) <= shared_limit(arch):
        return "rms_norm_on_chip"
    return "rms_norm_streaming"
