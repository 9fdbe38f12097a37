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
        unroll: independent accesses in flight; both counts are multiples of it.
    """

    threads: int
    vector: int
    in_registers: int
    in_shared: int
    unroll: int

    def shared_bytes(self, dtype: str) -> int:
        """Shared memory that the block needs, with the partial sums of its warps."""
        return (
            self.in_shared * self.threads * self.vector * ITEMSIZE[dtype] + self.threads // 32 * 4
        )


@dataclass(frozen=True)
class StreamingConfig:
    """A row a block, read twice in chunks of ``threads * vector * unroll`` elements."""

    threads: int
    vector: int
    unroll: int


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


def choose_row_config(n: int, dtype: str, weight_dtype: str | None, aligned: bool) -> RowConfig:
    """The layout of ``rms_norm`` for rows of ``n``."""
    vector = vector_of(n, dtype, aligned)
    accesses = -(-n // vector)
    threads_per_row = min(max(_power_of_two(-(-accesses // 4)), 1), 1024)
    rows_per_block = max(128 // threads_per_row, 1)
    return RowConfig(threads_per_row, rows_per_block, vector, weight_early=True)


#: Bytes of a row that ``rms_norm_on_chip`` keeps in the registers of a block. A block of 1024
#: threads has 64 registers a thread: 24 hold data and the rest the work.
_REGISTER_BYTES = 96 * 1024


def choose_on_chip_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool
) -> OnChipConfig:
    """The layout of ``rms_norm_on_chip`` for rows of ``n``."""
    vector = vector_of(n, dtype, aligned)
    threads, unroll = 1024, 4
    chunks = -(-n // (threads * vector * unroll))
    # A single 16-bit element may take a register of its own, so it is counted as four bytes.
    chunk_bytes = threads * unroll * max(vector * ITEMSIZE[dtype], 4)
    in_registers = min(chunks, _REGISTER_BYTES // chunk_bytes) * unroll
    return OnChipConfig(threads, vector, in_registers, chunks * unroll - in_registers, unroll)


def choose_streaming_config(
    n: int, dtype: str, weight_dtype: str | None, aligned: bool
) -> StreamingConfig:
    """The layout of ``rms_norm_streaming`` for rows of ``n``."""
    return StreamingConfig(threads=1024, vector=vector_of(n, dtype, aligned), unroll=4)


def select(n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a") -> Name:
    """Which program serves rows of ``n`` elements of ``dtype`` on ``arch``."""
    if n * ITEMSIZE[dtype] <= 64 * 1024:
        return "rms_norm"
    limit = SHARED_BYTES.get(arch, min(SHARED_BYTES.values()))
    if choose_on_chip_config(n, dtype, None, aligned).shared_bytes(dtype) <= limit:
        return "rms_norm_on_chip"
    return "rms_norm_streaming"
