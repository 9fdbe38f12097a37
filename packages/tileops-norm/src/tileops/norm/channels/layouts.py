"""Which program serves a channel norm's sizes, and how it is laid out.

Pure Python: no torch, no TileLang. Dtypes are TileLang's names. An *access* is what a thread moves
at once, ``vector`` elements. Layouts hold what a program is built for; everything else about the
sizes is a number at its launch, so that one build serves many of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tileops.norm.channels.shapes import Shape
from tileops.norm.rows.configs import ACCESS_BYTES, ITEMSIZE, shared_limit

__all__ = [
    "CLUSTERS",
    "MOST_CHANNELS",
    "ColumnsLayout",
    "ColumnsRunningLayout",
    "ColumnsSplitLayout",
    "FlatLayout",
    "HeldLayout",
    "Layout",
    "NothingLayout",
    "Program",
    "SplitLayout",
    "TeamLayout",
    "choose_layout",
    "columns_of",
]

Program = Literal[
    "held", "team", "split", "columns", "columns_split", "flat", "columns_running", "nothing"
]

#: Channels that lie side by side in a block's tile, at most.
MOST_CHANNELS = 64

#: Architectures whose blocks form clusters of up to 16.
CLUSTERS = ("sm_90a", "sm_100a", "sm_103a")


@dataclass(frozen=True)
class HeldLayout:
    """A unit in the registers of a block or of a cluster's blocks: read once.

    Attributes:
        cluster: blocks that share a unit.
        lanes: threads of a block that hold a unit's part; a power of two.
        units: units that share a block; 1 in a cluster.
        accesses: accesses of each thread.
        vector: elements of an access.
        straddle: whether an access may cover several channels.
        wide: whether there are so many units that their numbers need 64 bits.
        early: whether a group's weight and bias are fetched before the statistics are known, at
            the price of registers.
    """

    cluster: int
    lanes: int
    units: int
    accesses: int
    vector: int
    straddle: bool
    wide: bool
    early: bool = True
    program: ClassVar[Program] = "held"


@dataclass(frozen=True)
class TeamLayout:
    """A unit in the shared memory of a team of blocks, all of which run at once: read once.

    Attributes:
        threads: threads of a block.
        vector: elements of an access.
        depth: parts of units that a block holds at once, most of them still on their way.
        chunks, unroll: a part is ``chunks * unroll`` accesses of each thread; ``unroll`` of them
            are handled together.
        straddle: whether an access may cover several channels.
    """

    threads: int
    vector: int
    depth: int
    chunks: int
    unroll: int
    straddle: bool
    program: ClassVar[Program] = "team"

    @property
    def capacity(self) -> int:
        """Accesses of a block's part of a unit, at most."""
        return self.chunks * self.unroll * self.threads


@dataclass(frozen=True)
class SplitLayout:
    """A unit of any size over many blocks, read twice: for its statistics, then to normalize it.

    Attributes:
        threads: threads of a block.
        vector: elements of an access.
        unroll: accesses that are handled together.
        straddle: whether an access may cover several channels.
        wide: whether a place in a unit needs 64 bits.
    """

    threads: int
    vector: int
    unroll: int
    straddle: bool
    wide: bool
    program: ClassVar[Program] = "split"


@dataclass(frozen=True)
class ColumnsLayout:
    """Several channels of a batch side by side, in the registers of a cluster's blocks: read once.

    Attributes:
        cluster: blocks that share the rows.
        threads: threads of a block.
        vector: elements of an access.
        accesses: accesses of each thread, each of another row.
    """

    cluster: int
    threads: int
    vector: int
    accesses: int
    program: ClassVar[Program] = "columns"


@dataclass(frozen=True)
class ColumnsSplitLayout:
    """Several channels of a batch side by side, any number of rows, read twice.

    Attributes:
        threads: threads of a block.
        vector: elements of an access.
        unroll: rows that a thread handles together.
    """

    threads: int
    vector: int
    unroll: int
    program: ClassVar[Program] = "columns_split"


@dataclass(frozen=True)
class ColumnsRunningLayout:
    """By the running statistics, channels side by side: a thread keeps to its columns.

    Attributes: as those of :class:`ColumnsSplitLayout`.
    """

    threads: int
    vector: int
    unroll: int
    program: ClassVar[Program] = "columns_running"


@dataclass(frozen=True)
class FlatLayout:
    """By the running statistics, element by element.

    Attributes:
        threads: threads of a block.
        vector: elements of an access, which are of one channel.
        accesses: accesses of each thread.
        wide: whether a place in the tensor needs 64 bits.
    """

    threads: int
    vector: int
    accesses: int
    wide: bool
    program: ClassVar[Program] = "flat"


@dataclass(frozen=True)
class NothingLayout:
    """No element to normalize; running statistics and the counter may still move."""

    program: ClassVar[Program] = "nothing"


Layout = (
    HeldLayout
    | TeamLayout
    | SplitLayout
    | ColumnsLayout
    | ColumnsSplitLayout
    | ColumnsRunningLayout
    | FlatLayout
    | NothingLayout
)


class Columns(NamedTuple):
    """How a batch is cut into tiles of channels that lie side by side.

    Attributes:
        channels: channels of a tile.
        accesses: accesses that cover a tile's part of a row.
        tiles: tiles of the batch.
    """

    channels: int
    accesses: int
    tiles: int


def choose_layout(
    shape: Shape, dtype: str, aligned: bool, own: bool, arch: str, processors: int
) -> Layout:
    """The layout for ``shape`` on a card with ``processors`` multiprocessors.

    ``aligned`` says that x starts at a multiple of 16 bytes; ``own``, that the statistics are the
    input's.
    """
    if shape.elements == 0:
        return NothingLayout()
    if not own:
        return _running_layout(shape, dtype, aligned)
    vector, straddle = _vector(shape, dtype, aligned)
    if shape.mode == "batch" and vector * ITEMSIZE[dtype] < ACCESS_BYTES // 2:
        layout = _columns_layout(shape, dtype, aligned, arch, processors)
        if layout is not None:
            return layout
    return (
        held_layout(shape, dtype, vector, straddle, arch, processors)
        or team_layout(shape, dtype, vector, straddle, arch, processors)
        or split_layout(shape, dtype, vector, straddle)
    )


def held_layout(
    shape: Shape, dtype: str, vector: int, straddle: bool, arch: str, processors: int
) -> HeldLayout | None:
    """Registers: up to 32 KiB of a unit a block, a cluster of blocks where one is not enough."""
    accesses = shape.size // vector
    narrow = ACCESS_BYTES // (vector * ITEMSIZE[dtype])
    most = min(8 * narrow, 32)
    lanes = min(power_of_two(-(-accesses // 2)), 256)
    largest = 16 if arch in CLUSTERS else 1
    cluster = 1
    while cluster < largest and (
        accesses > cluster * 256 * most
        or (shape.units * cluster < 2 * processors and accesses >= cluster * 2 * 512)
    ):
        cluster *= 2
    if accesses > cluster * lanes * most:
        return None
    each = -(-accesses // (cluster * lanes))
    each = each if each <= 8 else -(-each // 4) * 4
    units = max(128 // lanes, 1) if cluster == 1 else 1
    wide = shape.elements >= 2**31
    return HeldLayout(cluster, lanes, units, each, vector, straddle, wide, early=each <= 4)


def team_layout(
    shape: Shape, dtype: str, vector: int, straddle: bool, arch: str, processors: int
) -> TeamLayout | None:
    """Shared memory of up to all multiprocessors; the deepest queue of parts that has the room."""
    if vector * ITEMSIZE[dtype] < 4:  # the least that cp.async copies
        return None
    if shape.size // vector >= 2**31 or shape.units >= 2**31:
        return None
    threads = 1024
    room = (shared_limit(arch) - 2048) // (threads * vector * ITEMSIZE[dtype])
    for depth in (7, 4, 3, 2, 1):
        accesses = room // depth
        # Of up to eight that are handled together, as many as leave the least room unused.
        unroll = max(range(1, 9), key=lambda count: (accesses // count * count, count))
        layout = TeamLayout(threads, vector, depth, accesses // unroll, unroll, straddle)
        if 0 < shape.size // vector <= layout.capacity * processors:
            return layout
    return None


def split_layout(shape: Shape, dtype: str, vector: int, straddle: bool) -> SplitLayout:
    """Two launches for what fits no chip, or no multiprocessor's registers without a cluster."""
    return SplitLayout(256, vector, 4, straddle, shape.elements >= 2**31)


def columns_of(shape: Shape, vector: int, threads: int) -> Columns | None:
    """Tiles whose rows are whole accesses: at least 128 bytes where the channels are so many.

    None where the narrowest tile is wider than a block has threads.
    """
    least = vector // math.gcd(shape.space, vector)  # channels of the narrowest tile
    narrowest = least * shape.space // vector
    if narrowest > threads:
        return None
    times = max(1, min(8 // narrowest, -(-shape.channels // least), MOST_CHANNELS // least))
    channels = least * times
    return Columns(channels, channels * shape.space // vector, -(-shape.channels // channels))


def _columns_layout(
    shape: Shape, dtype: str, aligned: bool, arch: str, processors: int
) -> ColumnsLayout | ColumnsSplitLayout | None:
    vector = _widest(shape.channels * shape.space, dtype, aligned)
    threads = 512
    if vector <= _widest(shape.space, dtype, aligned):
        return None
    columns = columns_of(shape, vector, threads)
    if columns is None:
        return None
    rows = threads // columns.accesses
    largest = 16 if arch in CLUSTERS else 1
    cluster = 1
    while cluster < largest and (
        shape.samples > cluster * rows * 16
        or (columns.tiles * cluster < 2 * processors and shape.samples >= cluster * rows * 8)
    ):
        cluster *= 2
    accesses = -(-shape.samples // (cluster * rows))
    if accesses > 16:
        return ColumnsSplitLayout(threads, vector, 4)
    return ColumnsLayout(cluster, threads, vector, accesses if accesses <= 8 else 16)


def _running_layout(shape: Shape, dtype: str, aligned: bool) -> FlatLayout | ColumnsRunningLayout:
    vector = _widest(shape.space, dtype, aligned)
    wider = _widest(shape.channels * shape.space, dtype, aligned)
    if vector * ITEMSIZE[dtype] < ACCESS_BYTES // 2 and wider > vector:
        layout = ColumnsRunningLayout(256, wider, 4)
        if columns_of(shape, wider, layout.threads) is not None:
            return layout
    return FlatLayout(256, vector, 4, shape.elements >= 2**31)


def _vector(shape: Shape, dtype: str, aligned: bool) -> tuple[int, bool]:
    """Elements of an access to a unit, and whether it may cover several channels.

    Accesses of 8 bytes inside a channel are preferred to ones of 16 that may leave it.
    """
    inside = _widest(shape.space, dtype, aligned)
    across = _widest(shape.run, dtype, aligned)
    if shape.mode != "group" or inside * ITEMSIZE[dtype] >= ACCESS_BYTES // 2 or inside == across:
        return inside, False
    return across, True


def _widest(run: int, dtype: str, aligned: bool) -> int:
    """The widest access, in elements, at which runs of ``run`` elements start."""
    vector = ACCESS_BYTES // ITEMSIZE[dtype] if aligned else 1
    while run % vector:
        vector //= 2
    return vector


def power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()
