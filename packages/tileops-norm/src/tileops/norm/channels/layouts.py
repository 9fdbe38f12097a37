"""How the channel norms' programs are laid out.

Pure Python: no torch, no TileLang. Dtypes are TileLang's names. An *access* is what a thread moves
at once, ``vector`` elements. Layouts hold what a program is built for; everything else about the
sizes is a number at its launch, so that one build serves many of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tileops.norm.channels.shapes import Shape

__all__ = [
    "CLUSTERS",
    "MOST_CHANNELS",
    "ColumnsLayout",
    "ColumnsRunningLayout",
    "ColumnsSplitLayout",
    "EvenLayout",
    "FlatLayout",
    "HeldLayout",
    "Layout",
    "NothingLayout",
    "Program",
    "RelayLayout",
    "SplitLayout",
    "columns_of",
    "power_of_two",
]

Program = Literal[
    "held",
    "even",
    "relay",
    "split",
    "columns",
    "columns_split",
    "flat",
    "columns_running",
    "nothing",
]

#: Channels that lie side by side in a block's tile, at most.
MOST_CHANNELS = 64

#: Architectures whose blocks form clusters.
CLUSTERS = ("sm_90a", "sm_100a", "sm_103a")

#: Accesses of 16 bytes that a thread holds of a unit, at most: no more were measured.
MOST_HELD = 13

#: Values of a unit that a thread of the even program keeps as floats where x has 16 bits: more
#: would take too many registers.
MOST_FLOATS = 32

#: Warps whose statistics a thread of an even program reads all of.
MOST_READ = 8

#: Rows that a thread holds of side by side channels, at most.
MOST_ROWS = 16


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
    """

    cluster: int
    lanes: int
    units: int
    accesses: int
    vector: int
    straddle: bool
    wide: bool
    program: ClassVar[Program] = "held"


@dataclass(frozen=True)
class EvenLayout:
    """As :class:`HeldLayout`, where every thread holds ``accesses`` accesses, no more and no less.

    It serves tensors of fewer than 2**31 elements, whose units are runs: no batch's channels.

    Attributes:
        cluster: blocks that share a unit.
        lanes: threads of a block that hold a unit's part; of more than 32, a multiple of 32.
        units: units that share a block; 1 in a cluster.
        accesses: accesses of each thread.
        vector: elements of an access, which are of one channel.
        blocks: blocks that must fit a multiprocessor at once; the compiler keeps its registers to
            it.
        touch: whether a group's weights are brought into L1 before they are needed.
        filled: whether blocks of several units are of no fewer, so that nothing asks whether a unit
            is there.
        past_l1: whether x is read past L1.
    """

    cluster: int
    lanes: int
    units: int
    accesses: int
    vector: int
    blocks: int = 1
    touch: bool = False
    filled: bool = False
    past_l1: bool = False
    program: ClassVar[Program] = "even"

    @property
    def warps(self) -> int:
        """Warps that hold a unit, of all blocks of the cluster; one may hold several units."""
        return max(self.lanes // 32, 1) * self.cluster

    @property
    def sharing(self) -> int:
        """Neighbours that share reading what the warps found; each reads all where it is little."""
        return 1 if self.warps <= MOST_READ else math.gcd(self.warps, 32)

    @property
    def read(self) -> int:
        """Warps whose findings a thread reads, and averages by a product with ``1 / read``."""
        return self.warps // self.sharing


@dataclass(frozen=True)
class RelayLayout:
    """A unit over many blocks, read twice by one launch: the second time while L2 still holds it.

    Attributes:
        threads: threads of a block.
        vector: elements of an access, which are of one channel.
        unroll: accesses that are handled together.
        accesses: accesses of each thread to a part of a unit.
    """

    threads: int
    vector: int
    unroll: int
    accesses: int
    program: ClassVar[Program] = "relay"


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
    | EvenLayout
    | RelayLayout
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


def power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()
