"""How a row program is laid out: what its build depends on besides the op and the dtypes.

Pure Python: no torch, no TileLang. Widths are in elements, dtypes are TileLang's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = [
    "ACCESS_BYTES",
    "HINTS",
    "ITEMSIZE",
    "MAX_WIDTH",
    "Build",
    "Config",
    "GroupConfig",
    "Hint",
    "RowConfig",
    "WideConfig",
    "power_of_two",
    "shared_limit",
    "together",
    "whole_warps",
]

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float8_e4m3fn": 1}

#: The widest row that every program here was built for and checked with.
MAX_WIDTH = 262144

#: One access moves at most 16 bytes a thread, the widest load before sm_100.
ACCESS_BYTES = 16

#: The widest cluster that every card with clusters can launch.
MAX_CLUSTER = 8

#: Rows that may share a thread.
GROUP_ROWS = (1, 2, 4, 8)

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

#: How an access treats the caches, as device.py numbers them: not said; through the cache of
#: constants ("const", no memory that the kernel writes); not kept in L1; both; streaming (``.cs``);
#: the first to leave both caches; the last; not kept in L1 and the first to leave L2. Stores know
#: "none", "streaming" and "first".
Hint = Literal["none", "const", "no_l1", "const_no_l1", "streaming", "first", "last", "no_l1_first"]
HINTS: tuple[Hint, ...] = get_args(Hint)


@dataclass(frozen=True)
class RowConfig:
    """A row in the registers of ``threads_per_row`` threads of one block, or of each of a cluster.

    Attributes:
        threads_per_row: a power of two up to 32, or a multiple of 32.
        rows_per_block: groups of such threads in a block, each with a row; 1 in a cluster.
        vector: elements of one access.
        early: whether the weight and its like are read before the reduction, and kept, at the price
            of registers. A quantized row's weight always is read there, and again where not kept.
        cluster: blocks that share a row.
        phased: whether accesses are wide although rows do not all start where they may.
        packed: whether the row is converted to float32 in each pass anew, which takes half the
            registers.
        blocks_per_sm: blocks that must fit a multiprocessor at once; the compiler keeps its
            registers below what that needs.
        load: how reads of x, and of what is added to it, treat the caches.
        columns: how those of the weight and its like do.
        store: how writes do.
        rows_per_thread: rows that a group of threads holds side by side, for all of which it reads
            the weight and its like once; one of GROUP_ROWS.
    """

    threads_per_row: int
    rows_per_block: int
    vector: int
    early: bool
    cluster: int = 1
    phased: bool = False
    packed: bool = True
    blocks_per_sm: int = 1
    load: Hint = "none"
    columns: Hint = "const"
    store: Hint = "none"
    rows_per_thread: int = 1

    @property
    def lanes(self) -> int:
        return self.threads_per_row

    @property
    def rows(self) -> int:
        return self.rows_per_block * self.rows_per_thread

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads_per_row * self.rows_per_block

    @property
    def sharing(self) -> bool:
        """Whether rows share what is read of the weight and its like."""
        return self.rows_per_thread > 1

    def unshared(self) -> str:
        """Why rows cannot share it so; empty where they can."""
        if self.rows_per_thread not in GROUP_ROWS:
            return f"rows_per_thread must be one of {GROUP_ROWS}, not {self.rows_per_thread}"
        if self.cluster > 1:
            return "a cluster has one row"
        if self.phased:
            return "rows have phases of their own"
        return ""

    @property
    def again(self) -> Hint:
        return self.load

    @property
    def products(self) -> bool:
        return False

    def accesses(self, n: int) -> int:
        """Accesses that each thread makes to cover a row of ``n``."""
        return -(-_chunks(n, self) // (self.threads_per_row * self.cluster))


@dataclass(frozen=True)
class WideConfig:
    """A row a block, or a cluster: part in registers, part in shared memory, the rest read again.

    Attributes:
        threads: threads of a block.
        vector: elements of one access.
        in_registers: accesses of each thread that stay in registers.
        in_shared: accesses of each thread that go to shared memory.
        unroll: accesses that are handled together, other than those in registers; ``in_shared`` is
            a multiple of it.
        cluster: blocks that share a row.
        phased: as in RowConfig.
        early: as in RowConfig; only where all of the row is in shared memory.
        backwards: whether what is read again is read from its end on.
        step: accesses that are handled together where they are read again, of ``unroll`` a part;
            with ``products`` those whose weight is read together, too. 0 is ``unroll``.
        products: whether tensor cores add up the row and its squares: see products.py. Of half
            precision, not quantized, by full accesses.
        again: how the reads that come again treat the caches.
        blocks_per_sm, load, columns, store: as in RowConfig.
    """

    threads: int
    vector: int
    in_registers: int
    in_shared: int
    unroll: int
    cluster: int = 1
    phased: bool = False
    early: bool = False
    backwards: bool = False
    blocks_per_sm: int = 1
    step: int = 0
    products: bool = False
    load: Hint = "none"
    again: Hint = "none"
    columns: Hint = "const"
    store: Hint = "none"

    @property
    def lanes(self) -> int:
        return self.threads

    @property
    def rows(self) -> int:
        return 1

    @property
    def block(self) -> int:
        return self.threads

    def accesses(self, n: int) -> int:
        """Accesses that each thread makes to cover a row of ``n``."""
        return self.in_registers + self.in_shared + self.streamed(n)

    def streamed(self, n: int) -> int:
        """Accesses of each thread that are made more than once, in whole groups of ``unroll``."""
        every = -(-_chunks(n, self) // (self.threads * self.cluster))
        rest = every - self.in_registers - self.in_shared
        return max(-(-rest // self.unroll), 0) * self.unroll

    def shared_bytes(self, dtype: str) -> int:
        """Shared memory that a block needs, with what its row's warps find.

        1 KiB is that of a quantized row that is read again: the rest starts at a multiple of it.
        """
        warps = self.threads // 32 * self.cluster
        held = self.in_shared * self.threads * self.vector * ITEMSIZE[dtype]
        return held + 5 * 4 * warps + 16 + 1024


@dataclass(frozen=True)
class GroupConfig:
    """Several rows in a cluster of blocks: in registers, and the rest in shared memory.

    A thread's accesses are counted row by row, each row's from the first on. Rows fill the blocks'
    accesses: ``n`` is what the threads of a cluster read of a row, and no less.

    Attributes:
        threads: threads of a block.
        vector: elements of one access.
        rows: rows that share a cluster; 1, 2 or 4.
        in_registers: accesses of each thread that stay in registers, the first ones.
        in_shared: accesses of each thread that go to shared memory, all others.
        unroll: accesses of these that are read together, of one row.
        cluster: blocks that share the rows; 2 or more.
        blocks_per_sm, load, columns, store: as in RowConfig.
    """

    threads: int
    vector: int
    rows: int
    in_registers: int
    in_shared: int
    unroll: int
    cluster: int
    blocks_per_sm: int = 1
    load: Hint = "none"
    columns: Hint = "const"
    store: Hint = "none"

    @property
    def lanes(self) -> int:
        return self.threads

    @property
    def block(self) -> int:
        return self.threads

    @property
    def again(self) -> Hint:
        return self.load

    @property
    def phased(self) -> bool:
        return False

    @property
    def products(self) -> bool:
        return True

    def accesses(self, n: int) -> int:
        """Accesses that each thread makes to cover a row of ``n``."""
        return -(-_chunks(n, self) // (self.threads * self.cluster))

    def unheld(self, n: int) -> str:
        """Why the layout is not one of rows of ``n``; empty where it is."""
        every = self.accesses(n)
        if self.rows not in (1, 2, 4):
            # A warp's lanes are shared out among the rows: with 3, lanes of no row were left, which
            # sent numbers that no block expected, over its barrier. The card waited for ever.
            return f"rows must be 1, 2 or 4, not {self.rows}"
        if self.threads % 32 or not 2 <= self.cluster <= MAX_CLUSTER:
            return "blocks are whole warps, and 2 to 8 of them a cluster"
        if n != every * self.threads * self.cluster * self.vector:
            return "rows must fill all accesses"
        if self.rows * every != self.in_registers + self.in_shared:
            return f"a thread has {self.rows * every} accesses to keep"
        if every % self.unroll or self.in_registers % self.unroll:
            return f"unroll must divide in_registers, and the {every} accesses of a row"
        return ""

    def shared_bytes(self, dtype: str) -> int:
        """Shared memory that a block needs, in whole KiB what the exchange takes of it."""
        held = self.in_shared * self.threads * self.vector * ITEMSIZE[dtype]
        # Twice, two kinds of numbers.
        found = 2 * (4 * 2 * self.rows * (self.threads // 32 + self.cluster) + 8)
        return held + -(-found // 1024) * 1024


Config = RowConfig | WideConfig | GroupConfig


@dataclass(frozen=True)
class Build:
    """All that a program of one op depends on.

    Attributes:
        n: elements of a row.
        dtype: x's.
        config: the layout.
        many: another, for calls of ``many_rows`` rows or more: all are in the program, since a
            call with another number of rows builds nothing.
        several: a third, for those of ``several_rows`` or more, but fewer than ``many_rows``.
        weight, bias: their dtypes; None is none.
        offset: whether a number is added to the weight.
        bounded: whether a quantized row's scale has an upper bound.
    """

    n: int
    dtype: str
    config: Config
    many: Config | None = None
    many_rows: int = 0
    several: Config | None = None
    several_rows: int = 0
    weight: str | None = None
    bias: str | None = None
    offset: bool = False
    bounded: bool = False

    @property
    def configs(self) -> list[Config]:
        """All its layouts."""
        return [c for c in (self.config, self.several, self.many) if c is not None]

    @property
    def mixed(self) -> bool:
        """Whether some of its layouts have clusters, and some have none."""
        return len({config.cluster for config in self.configs}) > 1


def together(*configs: Config) -> bool:
    """Whether a program may have kernels of all these layouts.

    Where only some are in clusters, the compiler tells these by their number of threads, which must
    be one: see clusters.py.
    """
    clusters = {config.cluster for config in configs}
    if len(clusters) == 1:
        return True
    clustered = {config.block for config in configs if config.cluster > 1}
    others = {config.block for config in configs if config.cluster == 1}
    return clusters == {1, max(clusters)} and len(clustered) == 1 and not clustered & others


def _chunks(n: int, config: Config) -> int:
    """The most accesses that a row of ``n`` can touch."""
    return -(-(n + (config.vector - 1 if config.phased else 0)) // config.vector)


def shared_limit(arch: str) -> int:
    """Bytes of shared memory that one block may use on ``arch``."""
    return SHARED_BYTES.get(arch, min(SHARED_BYTES.values()))


def power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()


def whole_warps(threads: int) -> int:
    """``threads``, rounded up to whole warps."""
    return -(-threads // 32) * 32
