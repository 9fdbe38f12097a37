"""How wide rows are laid out in clusters of blocks, with the measurements that chose.

Several blocks on each multiprocessor, so that some read while others write. Pure Python: no torch,
no TileLang. What the figures are stands in choices.py; "twice" there is ``_twice`` here.

A cluster that has rows one after the other, and reads each while it writes the one before, was
slower at all widths: LayerNorm of 4096x65536 took 287.7 to 323.1 µs with 2 to 8 rows a cluster, and
265.2 with one, RMSNorm 277.1 to 311.7 and 254.0. To read a weight into L1 before the sums are known
changed nothing.

The kernels of a program have clusters of one size, but for those of one block a row: see
clusters.py.
"""

from __future__ import annotations

from tileops.norm.rows.configs import (
    ACCESS_BYTES,
    ITEMSIZE,
    MAX_CLUSTER,
    Config,
    GroupConfig,
    WideConfig,
    power_of_two,
    whole_warps,
)
from tileops.norm.rows.ops import RowOp

__all__ = ["held", "many", "reread", "split"]

#: Threads of a block, where not said otherwise.
_THREADS = 512

_KIB = 1024


def _blocks_of(size: int) -> int:
    """As many blocks as hold a row of ``size`` bytes in 64 KiB each."""
    return -(-size // (64 * _KIB))


def split(op: RowOp, n: int, dtype: str) -> Config | None:
    """A row in a cluster of blocks, or in one that holds it; None where nothing was measured, or it
    is no gain.

    For rows that are read by full accesses, and have no phase.
    """
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    chunks = n // vector
    wide = dtype == "float32"
    cluster = _blocks_of(size)
    if size <= 32 * _KIB or op.modulated or op.quantized or cluster > MAX_CLUSTER:
        return None
    if op.statistics == "layer":
        return _split_layer(op, n, dtype, cluster)
    if size <= 64 * _KIB:
        return None
    if op.added:
        # fused_add_rms_norm 2048x65536 (253.1): cluster of 4 255.8, with ``.cs`` stores 261.8; of 8
        #   259.3; held in registers by one of 8 272.9
        # 2048x131072 (505.2): of 8 507.9, with ``.cs`` 527.3; held by a cluster of 2 557.7
        # 4096x40960 (320.2): 320 threads of 4 accesses 317.6, 640 of 2 343.6, 512 of which some
        #   make less than the others 347.2; in a cluster of 8 346.9
        # 2048x65536 of float32 (511.7): of 8 509.0, of 4 546.5; held by a cluster of 2 550.6
        # 2048x262144 (1000.5): twice, which it fills, 1031.5, stashed 1049.6; 1336x200000 (501.7),
        #   which it does not: 620.3 and 524.5
        if not wide and size > 256 * _KIB and chunks % (32 * _THREADS):
            return _stashed(chunks, vector, cluster, unroll=4)
        return _twice(chunks, vector, 4 if size <= 128 * _KIB else MAX_CLUSTER, 1536)
    if wide and size <= 256 * _KIB:
        # 8192x32768 of float32 (505.9): one block of 1024 514.7, a cluster of 4 of 512 513.6
        # 4096x65536 of float32 (507.9): twice 525.6, two rows in a cluster 536.1, held in registers
        #   544.0; one block of 1024 546.3
        return None if size <= 128 * _KIB else _twice(chunks, vector, MAX_CLUSTER, 2048)
    if not wide and size <= 128 * _KIB:
        # RMSNorm 64x65536, hot (3.3), 512 and 1536 (31.5, 94.2): 4.8, 33.9, 97.2; twice in a
        #   cluster of 4 5.1, 35.7, 100.3; two rows in one 6.2, 34.3, 96.8 to 98.9
        return _stashed(chunks, vector, cluster)
    # For few rows, where a row is not looked at for a second time. 64x131072, hot (5.8): stashed
    #   9.5, twice in a cluster of 8 8.4; 32x262144 (5.8): stashed 10.0, so 8.9
    return _halves(chunks, vector, cluster)


def _split_layer(op: RowOp, n: int, dtype: str, cluster: int) -> Config | None:
    """As split, of layer normalization."""
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    chunks = n // vector
    wide = dtype == "float32"
    if op.added and size <= 64 * _KIB:
        # fused_add_layer_norm 8192x32768 (504.4): 514.3, twice 515.9, 512 threads of 8 566.9, all
        #   in shared memory 556.3; 5000x20480, of 10000 (384.5): 387.9 and 410.0; 64x32768, hot
        #   (4.5), 6.0, in shared memory 7.0
        return None if wide else held(chunks, vector, 1, accesses=4, products=True)
    if op.added and (size <= 256 * _KIB or wide):
        # fused_add_layer_norm 2048x65536 (251.9): products of tensor cores 255.5, distances 262.5;
        #   2048x131072 (502.6) 510.6 and 530.5; 5456x49152 (503.6) 506.1 and 531.5; 64x65536, hot
        #   (7.0), 7.8 and 9.0; held by a cluster of 2, of 4 264.0, 528.2
        room = 4 if size <= 128 * _KIB else MAX_CLUSTER
        return _twice(chunks, vector, room, 1536, products=not wide)
    if op.added:
        # 2048x262144 (1004.4): 1057.4, held in registers 1082.0, two rows in a cluster 1114.1,
        #   twice 1069.5, by distances 1240.9; 1336x200000 (500.0) 531.0, in a cluster of 8 536.5,
        #   twice 555.3, by distances 749.1
        return _stashed(chunks, vector, cluster, unroll=4)
    if wide and size <= 64 * _KIB:
        return None
    # Few rows are in the program of many.
    grouped = _group(op, n, dtype)
    cluster = cluster if grouped is None else grouped.cluster
    # Instructions are not what limits these rows: a third as many in the same layout made one block
    # of 1024 threads 8 % faster. What is read of the weight and the bias is, twice as much as of x
    # where L1 has none of it.
    # layer_norm 4096x65536 (251.7): 262.4, the weight read past L1 271.4, by 256 threads in a
    #   cluster of 4 264.7, by 1024 in one block 270.8, in shared memory 277.2, by distances 273.3;
    #   2048x131072 (251.4): 273.1, in shared memory 284.4, by distances 289.3; 2048x262144 (500.4):
    #   564.9, 581.2, 613.5. 64x131072, hot (5.8): 9.8, by distances in shared memory 13.2
    # 2048x65536 of float32 (252.5): 281.6, in shared memory 318.8; 4096x32768 (253.0): 268.4 and
    #   274.7; 1024x131072 (252.5): 292.8 and 312.8
    # For few rows of half precision and up to 64 KiB: 64x32768, hot (2.1): 4.2, in shared memory
    #   by distances 5.1; 500 (15.3): 18.2 and 24.6
    return held(chunks, vector, cluster, products=not wide)


def many(op: RowOp, n: int, dtype: str) -> WideConfig | GroupConfig | None:
    """A layout of many rows of more than 64 KiB; None where there is no gain."""
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    if op.added or op.modulated or op.quantized:
        return None
    if size <= 128 * _KIB:
        return _one_block(op, n, dtype)
    cluster = _blocks_of(size)
    if dtype == "float32" or cluster > MAX_CLUSTER:
        return None
    if op.statistics == "layer":
        return _group(op, n, dtype)
    # RMSNorm 2048x131072 (252.9): 257.7, and 256.4 (252.6); two rows in a cluster of 8, by squares
    #   257.3, by products 260.2; in registers 259.3, twice 265.6; 2048x262144 (501.1): 521.0, two
    #   rows by squares 526.2, in registers 532.1, in halves 535.4; 2728x98304 (252.1): 258.4, in a
    #   cluster of 4 259.9, twice 265.4; 1336x200000 (250.4): 276.1, in a cluster of 8 273.4, in
    #   halves 300.9; 1640x163840 (251.5): 262.7, in halves 302.4
    return _stashed(n // vector, vector, cluster)


def _group(op: RowOp, n: int, dtype: str) -> GroupConfig | None:
    """Two rows in a cluster, for many rows; None where they do not fill it, or it is no gain.

    LayerNorm, against a row in a cluster: 2048x262144 (501.0) 529.5 and 562.5, with 2 accesses of
    the weight and the bias read early 537.6; 2048x131072 (252.2) 268.1 and 273.1, in a cluster of 8
    276.1, there with the weight staged in shared memory 270.6; 2728x98304 (250.9) 265.1 and 274.3;
    1366x196608 (251.6) 271.2 and 282.1. 4096x65536 (251.9) 277.8 and 262.4. Four rows in a cluster
    of 8 took 299.5 at 131072.
    """
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    if op.added or dtype == "float32" or size <= 128 * _KIB:
        return None
    cluster = power_of_two(_blocks_of(size))
    accesses = n // (_THREADS * cluster * vector)
    config = GroupConfig(
        _THREADS,
        vector,
        rows=2,
        in_registers=4,
        in_shared=2 * accesses - 4,
        unroll=4 if accesses % 4 == 0 else 2,
        cluster=cluster,
        blocks_per_sm=2,
        load="no_l1",
        columns="const_no_l1",
        store="streaming",
    )
    return None if cluster > MAX_CLUSTER or config.unheld(n) else config


def _one_block(op: RowOp, n: int, dtype: str) -> WideConfig | None:
    """One block a multiprocessor; None where nothing was measured, or it is slower.

    RMSNorm's threads read all of a row at once and then again from L1. Against clusters: 4096x65536
    (252.0) 253.4 and 265.8, in steps of 1 261.8, of 4 253.0; without ``.cs`` 255.4; 16 accesses of
    512 threads 280.0; two blocks a multiprocessor, whose rows L1 does not hold, 416.8. 5461x49152
    (251.1) 252.5 and 274.4, 6 accesses of 1024 threads 252.5. 6553x40960 (251.5) 253.4 and 282.6.
    Few rows wait for more: 64x65536 8.6 and 7.5, 1x65536 5.7 and 2.8, 1000x65536 (61.5) 67.4,
    without ``.cs``, and 64.1.

    LayerNorm's hold the row, and leave L1 to the weight and the bias. 5456x49152, three cards
    (250.7, 253.4, 251.1): 258.0, 261.1, 267.1, in clusters of 2 270.4; 6552x40960 (252.2) 261.9;
    4680x57344 (251.2), for which L1 is too small, 273.8, and in clusters 267.4.
    """
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    chunks = n // vector
    if op.statistics == "layer":
        if dtype == "float32" or size > 96 * _KIB:
            return None
        return held(chunks, vector, 1, accesses=-(-chunks // 1024), products=True)
    return reread(chunks, vector, 8, blocks=1, products=False)


def reread(
    chunks: int, vector: int, accesses: int, *, blocks: int = 2, products: bool
) -> WideConfig:
    """All of a row is read at once and then again from L1, by ``blocks`` on each multiprocessor."""
    return WideConfig(
        whole_warps(-(-chunks // accesses)),
        vector,
        0,
        0,
        accesses,
        blocks_per_sm=blocks,
        step=2,
        products=products,
        load="last",
        again="first",
        columns="last",
        store="streaming",
    )


def held(
    chunks: int, vector: int, cluster: int, *, accesses: int = 8, products: bool
) -> WideConfig:
    """A row in the registers of a cluster; L1 is the weight's and the bias's."""
    threads = whole_warps(-(-chunks // (accesses * cluster)))
    return WideConfig(
        threads,
        vector,
        -(-chunks // (threads * cluster)),
        0,
        1,
        cluster=cluster,
        blocks_per_sm=2 if threads <= _THREADS else 1,
        step=2 if products else 0,
        products=products,
        load="no_l1",
        columns="last",
        store="streaming",
    )


def _stashed(chunks: int, vector: int, cluster: int, unroll: int = 0) -> WideConfig:
    """A row of half precision in the shared memory of a cluster, by products of tensor cores."""
    threads = whole_warps(-(-chunks // (8 * cluster)))
    every = -(-chunks // (threads * cluster))
    unroll = unroll or every
    return WideConfig(
        threads,
        vector,
        0,
        -(-every // unroll) * unroll,
        unroll,
        cluster=cluster,
        blocks_per_sm=2,
        step=2,
        products=True,
        load="no_l1",
        columns="const_no_l1",
        store="streaming",
    )


def _twice(
    chunks: int, vector: int, cluster: int, room: int, *, products: bool = False
) -> WideConfig:
    """Four accesses of each thread, read twice; blocks of up to ``room`` threads in all."""
    threads = whole_warps(-(-chunks // (cluster * 4)))
    narrow = threads <= _THREADS
    return WideConfig(
        threads,
        vector,
        0,
        0,
        2 if narrow else 4,
        cluster=cluster,
        blocks_per_sm=max(room // threads, 1) if narrow else 1,
        step=2 if products else 0,
        products=products,
        load="last",
        again="first",
        columns="last",
    )


def _halves(chunks: int, vector: int, cluster: int) -> WideConfig:
    """A row that is held by blocks of 512 threads: 4 accesses of each in registers, the others in
    shared memory; two blocks on each multiprocessor where they fit."""
    every = -(-chunks // (_THREADS * cluster))
    in_shared = max(-(-(every - 4) // 4), 1) * 4
    return WideConfig(
        _THREADS,
        vector,
        4,
        in_shared,
        4,
        cluster=cluster,
        blocks_per_sm=2 if in_shared <= 12 else 1,
    )
