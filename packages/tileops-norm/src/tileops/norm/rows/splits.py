"""How wide rows are laid out in clusters of blocks, with the measurements that chose.

Several blocks on each multiprocessor, so that some read while others write. Pure Python: no torch,
no TileLang. What the figures are stands in choices.py; "twice" there is ``_twice`` here.

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
    whole_warps,
)
from tileops.norm.rows.ops import RowOp

__all__ = ["group", "one_block", "split"]

#: Threads of a block, where not said otherwise.
_THREADS = 512

_KIB = 1024


def split(op: RowOp, n: int, dtype: str) -> Config | None:
    """A row in a cluster of blocks; None where one block is as fast, or nothing was measured.

    For rows that are read by full accesses, and have no phase.
    """
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    chunks = n // vector
    wide = dtype == "float32"
    if size <= 64 * _KIB or op.modulated or op.quantized:
        return None
    if op.added:
        # fused_add_rms_norm 2048x65536 (253.1): cluster of 4 255.8, with ``.cs`` stores 261.8; of 8
        #   259.3; held in registers by one of 8 272.9
        # 2048x131072 (505.2): of 8 507.9, with ``.cs`` 527.3; held by a cluster of 2 557.7
        # 4096x40960 (320.2): 320 threads of 4 accesses 317.6, 640 of 2 343.6, 512 of which some
        #   make less than the others 347.2; in a cluster of 8 346.9
        # 2048x262144 (1018.7): 1024 threads, in one group 1041.5, in groups of 2 1118.7; 512 of 8
        #   accesses 1098.3; held 1197.6
        # 2048x65536 of float32 (511.7): of 8 509.0, of 4 546.5; held by a cluster of 2 550.6
        # fused_add_layer_norm 2048x65536 (254.2): of 4 264.7, with 2 blocks 279.9; one block of
        #   1024 318.2. 2048x131072 (505.0): of 8 533.6; one block of 1024 652.9
        if size <= 512 * _KIB:
            return _twice(chunks, vector, 4 if size <= 128 * _KIB else MAX_CLUSTER, 1536)
        if op.statistics == "layer":
            return None
        return _halves(chunks, vector, MAX_CLUSTER, blocks=1, hints=True)
    if op.statistics == "layer":
        # layer_norm 4096x65536 (251.3): a cluster of 2 of 512, all in shared memory in one group
        #   291.8, 4 accesses of 8 in registers 309.5; one block of 1024 314.3; a cluster of 8 of
        #   256 in registers 357.7
        # The next had no correction of the mean. 2048x131072 (253.1): a cluster of 4 287.3, of 8
        #   with 4 accesses 334.8, of 2 with 16 346.5; one block of 1024 354.9. 2048x262144 (504.5):
        #   of 8 613.7; 1024 in one of 2 750.7
        # Where rows do not fill it, a group of 8 spills about 100 bytes, and groups of 4 none.
        # Where they do, 131072 spills 12 with a weight and a bias of float32.
        if wide or size > 512 * _KIB:
            return None
        cluster = 2 if size <= 128 * _KIB else 4 if size <= 256 * _KIB else MAX_CLUSTER
        unroll = 8 if chunks == 8 * _THREADS * cluster else 4
        return _halves(chunks, vector, cluster, in_registers=0, unroll=unroll, hints=True)
    if wide and size <= 256 * _KIB:
        # 8192x32768 of float32 (505.9): one block of 1024 514.7, a cluster of 4 of 512 513.6
        # 4096x65536 of float32 (507.9): twice 525.6, two rows in a cluster 536.1, held in registers
        #   544.0; one block of 1024 546.3
        return None if size <= 128 * _KIB else _twice(chunks, vector, MAX_CLUSTER, 2048)
    many = group(op, n, dtype)
    if many is not None and size <= 256 * _KIB:
        # For few rows, one a cluster. Of many, with ``.cs`` stores, 4096x65536 (252.2) took 259.1
        #   so, and 8192x131072 (1005.7) 1036.1.
        return _twice(chunks, vector, many.cluster, 2048)
    if size <= 128 * _KIB:
        # RMSNorm 4096x65536 (251.3): a cluster of 2 of 512 of 8 accesses 258.3, one block of 1024
        #   260.4, a cluster of 8 of 256 of 4 269.2, one block of 512 of 16 274.3
        return _halves(chunks, vector, 2, hints=True)
    # 8192x131072 (1001.9): a cluster of 2 of 512 of 16 accesses 1051.3, with hints 1063.9 and
    #   1085.7; one block of 1024 1073.5, without hints 1094.0; a cluster of 8 of 512 of 4 1168
    # 2048x262144 (501.1): a cluster of 8 of 512 of 8 547.3, with hints 542.9 and 551.1; of 256 of
    #   16 540.9 and 556.1; a cluster of 2 of 1024 545.2, without hints 567.7
    return _halves(chunks, vector, 2 if size <= 256 * _KIB else MAX_CLUSTER)


def group(op: RowOp, n: int, dtype: str) -> GroupConfig | None:
    """Two rows in a cluster, for many rows; None where they do not fill it, or it is no gain.

    RMSNorm, against a row in a cluster: 4096x65536, three cards (251.2, 252.3, 253.2): 257.8,
    257.0, 268.1, and 266.1, 268.2, 270.1; 8192x131072 (1005.2) 1024.9 and 1036.9, with 2 accesses
    of the weight read early 1045.9 of 1005.7; 2048x262144 (504.3) 523.9 and 541.0, with 2 read
    early 537.5. Four rows took 1069.3 at 8192x131072. Few rows wait for more: 64x131072, hot
    (6.3), took 9.5 with four rows in a cluster, and 8.1 with one in a cluster of 2.

    LayerNorm gained nothing: 2048x131072 306.6, and 287.3.
    """
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    if op.statistics != "rms" or op.added or op.quantized or dtype == "float32":
        return None
    if size <= 64 * _KIB:
        return None
    cluster = 4 if size <= 128 * _KIB else MAX_CLUSTER
    accesses = n // (_THREADS * cluster * vector)
    if accesses % 4:
        return None
    config = GroupConfig(
        _THREADS,
        vector,
        rows=2,
        in_registers=4,
        in_shared=2 * accesses - 4,
        unroll=4,
        cluster=cluster,
        # Of float16, 4 would spill.
        early=4 if dtype == "bfloat16" else 2,
        blocks_per_sm=2,
        load="no_l1",
        columns="const_no_l1",
        store="streaming",
    )
    return None if config.unheld(n) else config


def one_block(op: RowOp, n: int, dtype: str) -> WideConfig | None:
    """One block a multiprocessor, whose threads read all of a row at once and then again from L1;
    None where nothing was measured, or it is slower.

    RMSNorm, against clusters: 4096x65536 (252.0) 253.4 and 265.8, in steps of 1 261.8, of 4 253.0;
    without ``.cs`` 255.4; 16 accesses of 512 threads 280.0; two blocks a multiprocessor, whose rows
    L1 does not hold, 416.8. 5461x49152 (251.1) 252.5 and 274.4, 6 accesses of 1024 threads 252.5.
    6553x40960 (251.5) 253.4 and 282.6. Few rows wait for more: 64x65536 8.6 and 7.5, 1x65536 5.7
    and 2.8, 1000x65536 (61.5) 67.4, without ``.cs``, and 64.1.

    What needs more instructions than RMSNorm has nothing beside it that goes on meanwhile:
    layer_norm 4096x65536 305.6, and 279.1 in clusters.
    """
    size, vector = n * ITEMSIZE[dtype], ACCESS_BYTES // ITEMSIZE[dtype]
    if op.statistics != "rms" or op.added or op.quantized:
        return None
    if not 64 * _KIB < size <= 128 * _KIB:
        return None
    accesses = 8
    return WideConfig(
        whole_warps(-(-(n // vector) // accesses)),
        vector,
        0,
        0,
        accesses,
        step=2,
        load="last",
        again="first",
        columns="last",
        store="streaming",
    )


def _twice(chunks: int, vector: int, cluster: int, room: int) -> WideConfig:
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
        load="last",
        again="first",
        columns="last",
    )


def _halves(
    chunks: int,
    vector: int,
    cluster: int,
    *,
    in_registers: int = 4,
    unroll: int = 4,
    blocks: int = 2,
    hints: bool = False,
) -> WideConfig:
    """A row that is held by blocks of 512 threads, two on each multiprocessor where they fit."""
    every = -(-chunks // (_THREADS * cluster))
    in_shared = max(-(-(every - in_registers) // unroll), 1) * unroll
    return WideConfig(
        _THREADS,
        vector,
        in_registers,
        in_shared,
        unroll,
        cluster=cluster,
        blocks_per_sm=blocks if in_shared <= 12 else 1,
        load="no_l1" if hints else "none",
        columns="const_no_l1" if hints else "const",
        store="streaming" if hints else "none",
    )
