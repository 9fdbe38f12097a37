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

ONE_BLOCK_A_ROW = 2**31 - 1


@dataclass(frozen=True)
class RowConfig:
    """A row in the registers of ``threads_per_row`` threads, ``rows_per_block`` rows a block.

    Attributes:
        threads_per_row: a power of two; a multiple of 32 above 32.
        rows_per_block: rows that share a block.
        vector: elements of one access.
        weight_early: whether the weight is fetched before the reduction, at the price of registers.
        blocks_per_sm: blocks that must fit a multiprocessor at once; the compiler keeps its
            registers below what that needs.
    """

    threads_per_row: int
    rows_per_block: int
    vector: int
    weight_early: bool
    blocks_per_sm: int = 1

    def accesses(self, n: int) -> int:
        """Accesses that each thread makes to cover a row of ``n``."""
        return -(-n // (self.threads_per_row * self.vector))


@dataclass(frozen=True)
class WideConfig:
    """A row a block: part in registers, part in shared memory, what is left read a second time.

    Attributes:
        threads: threads of the block.
        vector: elements of one access.
        in_registers: accesses of each thread that stay in registers.
        in_shared: accesses of each thread that stay in shared memory; a multiple of ``unroll``.
        unroll: accesses to shared memory, or of the part read again, that are handled together.
        blocks: the most blocks that are launched; each takes every ``blocks``-th row.
        blocks_per_sm: blocks that must fit a multiprocessor at once; the compiler keeps its
            registers below what that needs.
        keep_weight: whether each thread holds its part of the weight in registers for all rows.
    """

    threads: int
    vector: int
    in_registers: int
    in_shared: int
    unroll: int
    blocks: int
    blocks_per_sm: int = 1
    keep_weight: bool = False

    def streamed(self, n: int) -> int:
        """Accesses of each thread that are made twice, in whole groups of ``unroll``."""
        step = self.threads * self.vector
        return _whole_groups(n - (self.in_registers + self.in_shared) * step, step, self.unroll)

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
    # One H200, bf16 weight of x's dtype, graph replays, µs (torch.add(x, 1, out=y) in brackets):
    #   32768x1024 (33.8): 64 threads x 2 rows 34.0, 128 x 1 34.1, 32 x 4 35.1, 16 x 8 35.5
    #   2048x4096 (6.5): 256 threads 6.8 (fp16 6.5), 128 7.2, 512 8.5 (fp16)
    #   32768x4096 (128.0): 64 threads 129.7, 256 130.6, 128 131.7, 512 168.5
    #   2048x8192 (18.1): 256 threads, weight late 19.6, early 20.1, 512 22.8, 1024 35.3
    #   2048x16384 (33.8): 256 threads, weight late 37.3, early 47.1, 512 46.8, 1024 47.2
    #   32768x4095 (127.4; single elements): 256 threads 161.8, 512 195.2, 1024 290.8
    # So: two accesses a thread until there are 256 threads, never more, and the weight early only
    # while two accesses of it do not crowd the registers.
    vector = vector_of(n, dtype, aligned)
    accesses = -(-n // vector)
    threads_per_row = min(_power_of_two(-(-accesses // 2)), 256)
    rows_per_block = max(128 // threads_per_row, 1)
    return RowConfig(
        threads_per_row, rows_per_block, vector, weight_early=accesses <= 2 * threads_per_row
    )


def choose_on_chip_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool, arch: str = "sm_90a"
) -> WideConfig:
    """The layout of ``rms_norm_on_chip`` for rows of ``n``."""
    # One H200, bf16, µs. With one block a row and plain loads, before the next row was fetched
    # ahead:
    #   16384x32768 (torch.add 501.9): 512 threads, 8 accesses in shared memory 516.0, 4 + 4 541.8,
    #     256 threads 537.2, 1024 threads 590.8; all in registers 544.9 at best
    #   4096x65536 (251.5): 1024 threads, 4 in registers + 4 in shared 261.8, 0 + 8 276.7,
    #     512 threads, 4 + 12 274.9; all in registers 465.8 at best
    #   8192x131072 (1000.8): 1024 threads, 4 + 12 1081, 6 + 10 1369, 8 + 8 (spills) 1515
    # With the next row fetched ahead by cp.async, which was expected to win and loses:
    #   16384x32768 (502.4): 512 threads, 8 in shared 548.2 from 264 blocks, 547.2 from one a row
    #   4096x65536 (252.4): 1024 threads, 4 + 4 281.1 from 132 blocks, 283.4 from one a row
    #   8192x131072 (1006.5): 1024 threads, 4 + 12 1093 from 132 blocks, 1113 from one a row
    # So the asynchronous copies cost more than the overlap brings; plain loads are to come back.
    vector = vector_of(n, dtype, aligned)
    unroll = 4
    if n <= 512 * vector * 8:
        threads, in_registers, per_sm = 512, 0, 2
    else:
        # A single element would take a register of its own: registers hold whole accesses only.
        threads, per_sm = 1024, 1
        in_registers = unroll if vector * ITEMSIZE[dtype] == ACCESS_BYTES else 0
    in_shared = _whole_groups(n - in_registers * threads * vector, threads * vector, unroll)
    blocks = _blocks(per_sm, arch, vector, dtype)
    return WideConfig(threads, vector, in_registers, in_shared, unroll, blocks)


def choose_streaming_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool, arch: str = "sm_90a"
) -> WideConfig:
    """The layout of ``rms_norm_streaming`` for rows of ``n``: shared memory filled, the rest twice.

    Reading all of the row twice took 738.8 µs at 2048x262144 in bf16 (torch.add 501.0, F.rms_norm
    835.7; 1024 threads, groups of 4), holding 12 accesses of each thread and fetching ahead 671.6
    (504.0), 24 of 512 threads 701.7.
    """
    vector = vector_of(n, dtype, aligned)
    threads, unroll = 1024, 4
    group_bytes = threads * vector * ITEMSIZE[dtype] * unroll
    room = (shared_limit(arch) - threads // 4) // group_bytes * unroll
    in_shared = min(_whole_groups(n, threads * vector, unroll), room)
    return WideConfig(threads, vector, 0, in_shared, unroll, _blocks(1, arch, vector, dtype))


def _whole_groups(elements: int, step: int, unroll: int) -> int:
    """Accesses of ``step`` elements that cover ``elements``, in whole groups of ``unroll``."""
    return max(-(-elements // (step * unroll)), 0) * unroll


def _blocks(per_sm: int, arch: str, vector: int, dtype: str) -> int:
    """Blocks that fill the chip; without asynchronous copies there is nothing to run ahead of."""
    if vector * ITEMSIZE[dtype] < 4:
        return ONE_BLOCK_A_ROW
    return per_sm * MULTIPROCESSORS.get(arch, 128)


def shared_limit(arch: str) -> int:
    """Bytes of shared memory that one block may use on ``arch``."""
    return SHARED_BYTES.get(arch, min(SHARED_BYTES.values()))


def select(n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a") -> Name:
    """Which program serves rows of ``n`` elements of ``dtype`` on ``arch``.

    Up to 32 KiB a row lives in registers: at 2048x16384 in bf16 that took 37.3 µs, shared memory
    37.6; at 16384x32768 it took 544.9 and shared memory 516.0 (one H200). Above, the row is held
    on the chip while its part of shared memory fits, and read a second time where it does not.
    """
    if n * ITEMSIZE[dtype] <= 32 * 1024:
        return "rms_norm"
    config = choose_on_chip_config(n, dtype, None, aligned, arch)
    if config.shared_bytes(dtype) <= shared_limit(arch):
        return "rms_norm_on_chip"
    return "rms_norm_streaming"
