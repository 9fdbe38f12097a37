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
        held = (self.in_registers + self.in_shared) * self.threads * self.vector
        group = self.threads * self.vector * self.unroll
        return max(-(-(n - held) // group), 0) * self.unroll

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
    vector = vector_of(n, dtype, aligned)
    accesses = -(-n // vector)
    threads_per_row = min(max(_power_of_two(-(-accesses // 4)), 1), 1024)
    rows_per_block = max(128 // threads_per_row, 1)
    return RowConfig(threads_per_row, rows_per_block, vector, weight_early=True)


def choose_on_chip_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool, arch: str = "sm_90a"
) -> WideConfig:
    """The layout of ``rms_norm_on_chip`` for rows of ``n``."""
    vector = vector_of(n, dtype, aligned)
    threads, unroll = 1024, 2
    chunks = -(-n // (threads * vector * unroll))
    in_registers = unroll
    return WideConfig(
        threads, vector, in_registers, chunks * unroll - in_registers, unroll, _blocks(1, arch, vector, dtype)
    )


def choose_streaming_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool, arch: str = "sm_90a"
) -> WideConfig:
    """The layout of ``rms_norm_streaming`` for rows of ``n``: shared memory filled, the rest twice."""
    vector = vector_of(n, dtype, aligned)
    threads, unroll = 1024, 4
    chunks = -(-n // (threads * vector * unroll))
    chunk_bytes = threads * vector * ITEMSIZE[dtype] * unroll
    room = (shared_limit(arch) - threads // 4) // chunk_bytes
    return WideConfig(
        threads, vector, 0, min(chunks, room) * unroll, unroll, _blocks(1, arch, vector, dtype)
    )


def _blocks(per_sm: int, arch: str, vector: int, dtype: str) -> int:
    """Blocks that fill the chip; without asynchronous copies there is nothing to run ahead of."""
    if vector * ITEMSIZE[dtype] < 4:
        return ONE_BLOCK_A_ROW
    return per_sm * MULTIPROCESSORS.get(arch, 128)


def shared_limit(arch: str) -> int:
    """Bytes of shared memory that one block may use on ``arch``."""
    return SHARED_BYTES.get(arch, min(SHARED_BYTES.values()))


def select(n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a") -> Name:
    """Which program serves rows of ``n`` elements of ``dtype`` on ``arch``."""
    if n * ITEMSIZE[dtype] <= 16 * 1024:
        return "rms_norm"
    config = choose_on_chip_config(n, dtype, None, aligned, arch)
    if config.shared_bytes(dtype) <= shared_limit(arch):
        return "rms_norm_on_chip"
    return "rms_norm_streaming"
