"""Which program serves a channel norm's sizes, and in which layout, with what was measured.

Pure Python: no torch, no TileLang.
"""

from __future__ import annotations

from tileops.norm.channels.layouts import (
    CLUSTERS,
    MOST_FLOATS,
    MOST_HELD,
    MOST_ROWS,
    ColumnsLayout,
    ColumnsRunningLayout,
    ColumnsSplitLayout,
    EvenLayout,
    FlatLayout,
    HeldLayout,
    Layout,
    NothingLayout,
    RelayLayout,
    SplitLayout,
    columns_of,
    power_of_two,
)
from tileops.norm.channels.shapes import Shape
from tileops.norm.rows.configs import ACCESS_BYTES, ITEMSIZE, MAX_CLUSTER

__all__ = ["choose_layout", "even_layout", "held_layout", "relay_layout", "split_layout"]


#: Registers of a multiprocessor, and its threads and blocks at once for which even programs are
#: built: no more threads were measured, nor more accesses of a thread; some cards have no more
#: blocks.
REGISTERS, EVEN_THREADS, EVEN_BLOCKS, EVEN_ACCESSES = 65536, 1024, 16, 18

#: Blocks for each multiprocessor beyond which units share them.
BLOCKS_OF_UNITS = 8


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
    # Blocks that hold a unit in the shared memory of up to all multiprocessors, launched together,
    # would spare what no cluster holds the second read. On an H200 they took 177 us where relay
    # takes 171 ([2, 32, 128, 128, 128] by channels, float16), and more than split in the other six
    # cases: 57.2 against 56.7, 211 against 202, 93 against 86, 226 against 206, 174 against 88, 61
    # against 22.
    #
    # No layout is launched while the kernel before still runs (programmatic dependent launch). On
    # an H200 that took 0.3 to 0.6 us off where a graph held nothing but such launches. Behind a
    # kernel that is launched plainly, as what stands before a norm in a model is, it added 0.1 to
    # 0.3 us, in 17 shapes of 17: torch.add and RMSNorm of [2048, 4096] took 16.94 us for 16.75, of
    # [32, 4096] 3.16 for 3.03. Clusters TVM's runtime launches so in any case: see clusters.py.
    return (
        even_layout(shape, dtype, vector, straddle, arch, processors)
        or held_layout(shape, dtype, vector, straddle, arch, processors)
        or relay_layout(shape, dtype, vector, straddle, arch)
        or split_layout(shape, dtype, vector, straddle)
    )


def even_layout(
    shape: Shape, dtype: str, vector: int, straddle: bool, arch: str, processors: int
) -> EvenLayout | None:
    """Registers, where the threads come out even.

    Measured on an H200, in us, and in brackets of what is in L2, as cluster x threads x accesses,
    beside ``held_layout``'s. All units at once:

    - 1 KiB, 640 u, float16: 1x32x2 2.33 [1.66]; held 2.62 [1.93]
    - 8 KiB, 256 u, float16: 1x256x2 3.24 [2.30]; held 3.83 [2.85]
    - 8 KiB, 512 u, float16: 1x256x2 4.27 [3.05]; held 5.06 [3.82]
    - 16 KiB, 256 u, float32: 1x256x4 4.07 [2.77]; held 4.51 [3.09]
    - 80 KiB, 32 u, float16: 4x256x5 3.88 [2.77]; held 5.36 [4.50]
    - 80 KiB, 64 u, float16: 2x512x5 5.37 [3.82]; held 6.14 [4.46]
    - 80 KiB, 256 u, float16: 2x256x10 12.41 [8.70], 2x512x5 in two waves 13.48 [10.06]; held 16.31
      [12.97]
    - 320 KiB, 64 u, float16: 8x256x10 12.86 [9.92]; held 17.81 [14.27]
    - 720 KiB, 32 u, float16: 8x384x15 15.93 [13.81]; held 24.78 [23.01]; split 22.75 [20.59]

    Units of a warp or less, in another run, in which 1 KiB, 640 u took 2.28 [1.66] as above, and
    with what else came with these:

    - 1 KiB, 640 u: four to a block 2.17 [1.47], filled 2.16 [1.46], and past L1 2.13 [1.46]
    - 1 KiB, 396 u: one 2.18 [1.52], two 2.11 [1.41], four 2.12 [1.37], and past L1 2.08 [1.37]
    - 1 KiB, 264 u: one 2.08 [1.45], two 2.02 [1.33], and past L1 1.89 [1.33]; four 2.03 [1.33]
    - 1 KiB, 128 u: one 1.47 [1.44], two 1.52 [1.38], four 1.65 [1.40]
    - 1 KiB, 10240 u: four, filled 6.97 [4.10], and past L1 7.11 [4.12]
    - 512 B, 640 u: 1x32x1, four to a block 2.04 [1.34], 1x16x2, eight 2.06 [1.34]; two, which ask
      whether they are there, 2.25 [1.58]
    - 128 B, 640 u: 1x8x1, sixteen to a block 1.25 [1.25], four 1.28 [1.27]; 1x4x2, 32 to a block
      1.28 [1.28]
    - 2 KiB, 640 u: 1x64x2, one to a block 2.53 [1.80], two 2.56 [1.85]

    So up to 128 threads are a block where else there were more blocks than multiprocessors. What a
    launch of 640 blocks of a warp takes that end at once is 1.06, of 160 blocks of four 0.80.

    In several waves:

    - 1 KiB, 10240 u, float16: 1x32x2, four to a block 7.16 [4.58], one 8.03 [7.51]; held 7.86
      [5.12]
    - 8 KiB, 2048 u, float16: 1x128x4 10.48 [6.83], 1x256x2 10.68 [7.07]; held 11.47 [9.29]
    - 16 KiB, 2048 u, float32: 1x128x8 18.14 [17.60], 1x256x4 18.20 [17.42]; held 18.42 [17.72]
    - 320 KiB, 128 u, float16: 8x256x10 23.24, 8x128x20 24.12; held 29.23
    - 320 KiB, 256 u, float16: 8x256x10 41.99; held 50.11; relay 59.53
    - 512 KiB, 512 u, float16: 8x512x8 132.5, 8x256x16 132.5; held 131.7; relay 181.0. Behind
      torch.add the two took 258.5, 259.9 and held 259.9
    - 720 KiB, 64 u, float16: 8x384x15 27.66; held 40.61
    - 1 MiB, 256 u, float16: 8x512x16 142.6, 16x256x16 148.2; relay 167.9

    So the cluster is held's, and so are the threads, or half as many where those divide the
    accesses, or the most between: the first of them whose registers go round for all units at once.
    In an earlier run, in which clusters did not wait for the kernel before, the last of those cases
    took 17.44 [16.26] by 8x480x12 and 16.12 [13.80] by 8x384x15: 960 threads of a multiprocessor
    have 64 registers each, of which 48 would be x's.

    Layouts in which a thread averages what 5, 7 or more warps found, and no power of two or thrice
    one, are passed over. The reciprocals of 7, 13 and 15 do not give every number of half precision
    back, so that a constant unit's mean was not the constant; and programs of 8x352x17 spilled up
    to 388 bytes, of 1x160x15 100, of 8x416x13 32.

    Where none is, it is the one of which the most threads fit a multiprocessor, and where those are
    as many, in the most blocks: 8x256x10 has 1024 in four, 8x128x20 only 640 in five.

    A group's weights that lanes held for each other from before the statistics were known gained
    at most 0.03 beside the better of having them touched and not (8x256x10 13.85 [10.86], which is
    0.98 more; 8x320x18 16.07 [13.82]), and took code of their own. That was in the earlier run too.
    """
    whole = vector * ITEMSIZE[dtype] == ACCESS_BYTES and not straddle
    if shape.mode == "batch" or not whole or shape.elements >= 2**31:
        return None
    accesses = shape.size // vector
    cluster = _cluster(accesses, shape.units, MOST_HELD, arch, processors)
    part, left = divmod(accesses, cluster)
    if left:
        return None
    widest = _lanes(part, shape.units * cluster, MOST_HELD, processors)
    if part == power_of_two(part) <= 32 and shape.units * part <= processors * EVEN_THREADS:
        widest = part
    best, most = None, (0, 0)
    for lanes in (widest, widest // 2, *range(widest - 32, widest // 2, -32)):
        if lanes == 0 or part % lanes or part // lanes > EVEN_ACCESSES:
            continue
        each = part // lanes
        limit = 1 if lanes <= 32 else BLOCKS_OF_UNITS
        together = _together(lanes, cluster, shape.units, processors, limit)
        needed = -(-(-(-shape.units // together) * cluster) // processors)
        fitting = _fitting(lanes * together, each)
        blocks = min(needed, fitting)
        # Left alone, programs of few values took up to 56 registers, which are there in any case;
        # others up to 64 beside twice those of x. One build serves any number of units then.
        few = each * vector <= MOST_FLOATS
        free = few or 8 * each + 64 <= _registers(blocks * lanes * together)
        touch = shape.mode == "group" and cluster > 1
        filled = together > 1 and shape.units % together == 0
        past_l1 = cluster == 1 and lanes <= 32 and needed <= fitting
        found = EvenLayout(
            *(cluster, lanes, together, each, vector, 1 if free else blocks),
            *(touch, filled, past_l1),
        )
        if _odd_part(found.read) > 3:
            continue
        if needed <= fitting:
            return found
        if (fitting * lanes * together, fitting) > most:
            best, most = found, (fitting * lanes * together, fitting)
    return best


def _odd_part(number: int) -> int:
    return number // (number & -number)


def _fitting(threads: int, accesses: int) -> int:
    """Blocks of the even program that fit a multiprocessor: by registers, threads and blocks."""
    blocks = min(EVEN_THREADS // threads, EVEN_BLOCKS)
    # Held to 20 registers beside those of x, none of about 95 programs that come close spilled more
    # than 8 bytes, those with weights of another dtype or running statistics among them.
    while blocks and 4 * accesses + 20 > _registers(blocks * threads):
        blocks -= 1
    return blocks


def _registers(threads: int) -> int:
    """Registers of each of ``threads`` threads of a multiprocessor."""
    return REGISTERS // threads // 8 * 8


def held_layout(
    shape: Shape, dtype: str, vector: int, straddle: bool, arch: str, processors: int
) -> HeldLayout | None:
    """Registers: up to 52 KiB of a unit a block, a cluster of blocks where one is not enough.

    Measured on an H200 in float16, in us, as cluster x threads x accesses; ``u`` is units:

    - 8 KiB, 256 u: 1x512x1 3.85, 1x256x2 3.93, 1x128x4 4.16, 2x128x2 4.28, 1x64x8 4.80; in
      another run 3.96, 3.89 and 4.01, and of what is in L2 3.22, 3.05 and 3.16
    - 16 KiB, 256 u (float32): 1x256x4 4.80, 1x512x2 4.85, 2x128x4 4.91, 4x256x1 6.77
    - 80 KiB, 64 u: 2x512x5 6.41, 4x256x5 6.66, 8x128x5 6.65; split 12.1
    - 320 KiB, 64 u: 8x256x10 18.40, 16x128x10 17.84, 8x512x5 19.24, 4x512x10 22.2; split 22.0
    - 392 KiB, 256 u: 8x256x13 75.6, 4x512x13 77.3, 16x256x7 82.8, 8x512x7 96.6; split 88.2
    - 512 KiB, 512 u: 8x512x8 156.6, 16x256x8 158.3, 16x512x4 184.7; split 206.3
    - 1.5 MiB, 64 u: split 86.0, 16x512x13 90.2
    - 2 MiB, 32 u: split 56.7, 16x1024x8 64.0

    Clusters of 16, which not every card launches, won in one case of five, by 3%.

    Weights of a group that were fetched before the statistics were known gained nothing (1x256x2
    3.93 against 3.92) and cost up to a fifth (4x256x5 7.28 against 6.66, 16x256x5 21.8 against
    18.3).
    """
    accesses = shape.size // vector
    most = min(MOST_HELD * ACCESS_BYTES // (vector * ITEMSIZE[dtype]), 32)
    cluster = _cluster(accesses, shape.units, most, arch, processors)
    part = -(-accesses // cluster)
    if part > 512 * most:
        return None
    lanes = _lanes(part, shape.units * cluster, most, processors)
    each = -(-part // lanes)
    each = each if each <= MOST_HELD else min(-(-each // 4) * 4, most)
    together = _together(lanes, cluster, shape.units, processors, BLOCKS_OF_UNITS)
    return HeldLayout(cluster, lanes, together, each, vector, straddle, shape.elements >= 2**31)


def _cluster(accesses: int, units: int, most: int, arch: str, processors: int) -> int:
    """Blocks for a unit of ``accesses``: by the figures at ``held_layout``."""
    largest = MAX_CLUSTER if arch in CLUSTERS else 1
    cluster = 1
    while cluster < largest and (
        accesses > cluster * 256 * most
        # One block for each multiprocessor, of half a thousand accesses or more.
        or (2 * units * cluster <= processors and accesses >= cluster * 1024)
    ):
        cluster *= 2
    return cluster


def _together(lanes: int, cluster: int, units: int, processors: int, limit: int) -> int:
    """Units that share a block: a warp is full, and up to 128 threads where else a multiprocessor
    would get more than ``limit`` blocks.

    640 units of 1 KiB, a warp for each, by the held program: 2.70 in blocks of one, 2.77 in blocks
    of four.
    """
    together = max(32 // lanes, 1)
    while 2 * together * lanes <= 128 and cluster == 1 and units > together * limit * processors:
        together *= 2
    return together


def _lanes(part: int, blocks: int, most: int, processors: int) -> int:
    """Threads for ``part`` accesses: by the figures at ``held_layout``.

    1023 accesses, 128 blocks: 512x2 4.41, 256x4 4.66, 1024x1 4.72.
    """
    if part > 256 * most or (part > 512 and blocks <= processors):
        return 512
    if 64 < part <= 256 and blocks <= 4 * processors:
        return power_of_two(part)
    return min(power_of_two(-(-part // 2)), 256)


def relay_layout(
    shape: Shape, dtype: str, vector: int, straddle: bool, arch: str
) -> RelayLayout | None:
    """One launch for large tensors of units that L2 holds beside what else is under way.

    Measured on an H200 in float16, in us, parts of 32 KiB by 256x8 (threads x accesses):

    - group, 268 MB, units of 8 MiB: 185.7; split 202.1
    - instance, 268 MB, units of 4 MiB: 171.5; split 202.1
    - group, 67 MB, units of 2 MiB: 48.9; split 56.0
    - batch, 103 MB, units of 1.5 MiB: 75.4; split 86.9
    - batch, 103 MB, units of 392 KiB: 77.6; held 69.6
    - instance, 268 MB, units of 512 KiB: 179.4; held 133.7

    And parts of 16 KiB without hints, where L2 holds all: group, 24 MB, units of 720 KiB: 25.4;
    split 23.1. So it serves what is between the least tensor and the largest unit that it won at,
    on cards whose L2 is as large as that one's, 50 MB, or larger.

    In these six cases parts of 16 KiB took up to 14% more, and accesses without hints 3 to 15%. Of
    those without hints, blocks of 512 threads took 7 to 21% more.
    """
    whole = vector * ITEMSIZE[dtype] == ACCESS_BYTES and not straddle
    large = shape.elements * ITEMSIZE[dtype] >= 2**26 and shape.elements < 2**31
    if arch in CLUSTERS and whole and large and shape.size * ITEMSIZE[dtype] <= 2**23:
        return RelayLayout(256, vector, 4, 8)
    return None


def split_layout(shape: Shape, dtype: str, vector: int, straddle: bool) -> SplitLayout:
    """Two launches for what no cluster's registers hold.

    Measured on an H200 in float16, in us, as threads x accesses:

    - batch, 103 MB: 256x4 86.0, 256x8 87.3
    - group, 67 MB: 256x8 56.7, 256x4 57.9, 512x4 58.7
    - group, 268 MB: 512x4 201.5, 256x8 205.6, 256x4 211.8, 128x8 227.4
    - instance, 268 MB: 512x4 201.1, 256x4 206.3, 256x8 210.9
    """
    threads, unroll = 256, 4
    if shape.mode != "batch":
        large = shape.elements * ITEMSIZE[dtype] >= 2**27
        threads, unroll = (512, 4) if large else (256, 8)
    return SplitLayout(threads, vector, unroll, straddle, shape.elements >= 2**31)


def _columns_layout(
    shape: Shape, dtype: str, aligned: bool, arch: str, processors: int
) -> ColumnsLayout | ColumnsSplitLayout | None:
    """Measured on an H200 in float16, in us, as cluster x threads x accesses:

    - [64, 2048, 7, 7]: 1x256x16 14.45, 2x256x7 18.8, 1x512x7 20.0, 2x512x4 21.2, 4x256x4 22.9;
      split by 512x4 32.3, each channel by itself 32.4
    - [8192, 1024]: 8x512x16 35.4, 16x256x16 38.7, 16x512x8 49.1; split by 512x8 40.8, 512x4 57.4,
      256x4 71.1
    - [131072, 1024]: split by 256x4 280, by 512x4 319, by 512x8 326

    Of the splits, lines through these figures cross at 116 MB.
    """
    vector = _widest(shape.channels * shape.space, dtype, aligned)
    if vector <= _widest(shape.space, dtype, aligned):
        return None
    largest = MAX_CLUSTER if arch in CLUSTERS else 1
    for threads in (256, 512):
        columns = columns_of(shape, vector, threads)
        if columns is None:
            continue
        rows = threads // columns.accesses
        cluster = 1
        while cluster < largest and (
            shape.samples > cluster * rows * MOST_ROWS
            or (2 * columns.tiles * cluster <= processors and shape.samples >= cluster * rows * 8)
        ):
            cluster *= 2
        accesses = -(-shape.samples // (cluster * rows))
        if accesses <= MOST_ROWS:
            return ColumnsLayout(cluster, threads, vector, accesses if accesses <= 8 else MOST_ROWS)
    if columns is None:
        return None
    large = shape.elements * ITEMSIZE[dtype] >= 116_000_000
    if large and columns_of(shape, vector, 256) is not None:
        return ColumnsSplitLayout(256, vector, 4)
    return ColumnsSplitLayout(512, vector, 8)


def _running_layout(shape: Shape, dtype: str, aligned: bool) -> FlatLayout | ColumnsRunningLayout:
    """Measured on an H200 in float16, in us, as threads x accesses:

    - [32, 64, 112, 112]: 256x1 26.40 (as torch.add), 128x4 26.96, 512x2 27.02, 256x4 27.13
    - [64, 2048, 7, 7], channels side by side: 128x4 10.16, 256x4 10.56, 256x8 10.99, 256x2 11.45;
      element by element, 256x4 14.74
    """
    vector = _widest(shape.space, dtype, aligned)
    wider = _widest(shape.channels * shape.space, dtype, aligned)
    width = vector * ITEMSIZE[dtype]
    if width < ACCESS_BYTES // 2 and wider > vector:
        for threads in (128, 256):
            if columns_of(shape, wider, threads) is not None:
                return ColumnsRunningLayout(threads, wider, 4)
    accesses = 1 if width == ACCESS_BYTES else 4
    return FlatLayout(256, vector, accesses, shape.elements >= 2**31)


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
