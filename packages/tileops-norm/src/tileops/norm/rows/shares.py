"""Which rows share what is read of their weight, and how, with the measurements that chose.

One row a block reads a weight and a bias from L2, twice as much as the row itself: 2048x4096 of
LayerNorm took 12.0 µs with both, 11.5 without the bias and 10.0 with neither. Pure Python: no
torch, no TileLang. What the figures are stands in choices.py.
"""

from __future__ import annotations

from typing import NamedTuple

from tileops.norm.rows.configs import ACCESS_BYTES, ITEMSIZE, RowConfig, whole_warps
from tileops.norm.rows.ops import RowOp

__all__ = ["Share", "share"]


class Share(NamedTuple):
    """A layout for calls of ``rows`` rows or more.

    With fewer, its blocks are too few, and one has more to do before the first byte is written:
    layer_norm 32x4096 took 3.0 with 4 rows a thread and 2.0 with one.
    """

    config: RowConfig
    rows: int
    #: Whether no other layout serves many rows.
    alone: bool = False


def share(op: RowOp, n: int, dtype: str, vector: int, phased: bool) -> Share | None:
    """How rows of ``n`` share a weight; None where that is no gain, or was not measured."""
    # fused_add_rms_norm 2048x4096 (19.9): one row 18.4, 2 rows of 512 threads 18.7
    # fused_add_layer_norm 2048x4096 fp16 (19.9): one row 19.2, 2 rows of 256 threads 19.0
    # RMSNorm 32768x4095 (127.1): one row 146.0, 2 rows of 288 threads, phased 177.7
    if op.added or op.modulated or op.quantized or phased:
        return None
    chunks = n // vector
    layer = op.statistics == "layer"
    if vector * ITEMSIZE[dtype] == ACCESS_BYTES:
        made = _layer_norm if layer else _rms_norm
        return made(chunks, vector, dtype)
    # layer_norm 50176x261 of float32 (26.8): one row a warp 32.1, 2 rows 30.5, with 4 warps a block
    #   30.7, of 64 lanes 37.8; 4 rows 34.6. 4096x261 (4.1): 5.2 and 5.3, hot (2.5) 4.6 and 4.3;
    #   2048x261 3.0 and 3.2
    # RMSNorm 50176x261 of float32 (26.4): 29.0 and 30.3; 8192x511 (6.0): 7.4 and 7.6, hot (3.7) 6.4
    #   and 5.9
    if layer and dtype == "float32" and vector == 1 and 128 < chunks <= 288:
        return Share(RowConfig(32, 2, 1, True, rows_per_thread=2), 8192)
    return None


def _layer_norm(chunks: int, vector: int, dtype: str) -> Share | None:
    if not 64 < chunks <= 1024 or not _filled(chunks, 2):
        return None
    lanes = whole_warps(-(-chunks // 2))
    # fp16 12608x1024 (14.3): one row of 64 threads 15.8, 2 rows of 64 that may stay floats 15.1,
    #   weights read early 15.3, 2 of 128 15.5; kept packed, 2 of 64 15.5, 4 15.8, 2 of 128 15.6;
    #   hot (12.9) 15.1, 13.8, 14.1, 14.6; 14.2, 14.3, 14.8. By rows, one row of 64, and 2 of 64 in
    #   blocks of 128, kept packed: 8192 (10.1) 11.5 and 11.4; 4096 (6.1) 7.4 and 6.6; 2048 (4.0)
    #   4.5 and 4.7
    if chunks <= 128:
        if dtype == "float32":
            return None
        layout = RowConfig(lanes, 1, vector, False, packed=False, rows_per_thread=2)
        return Share(layout, 2**18 // lanes)
    # float32 8192x1600 (26.9): one row of 128 threads 28.3, 2 of 224 27.3, their weights read late
    #   27.9, 4 of 224 28.4, 2 of 416 33.1; 4096 rows (14.7) 15.9, -, 15.8; 2048 rows 9.5, -, 9.9
    if dtype == "float32":
        if chunks > 512:
            return None
        return Share(RowConfig(lanes, 1, vector, True, rows_per_thread=2), 4096)
    # fp16 2048x4096 (10.1): one row of 128 threads 12.1, 4 of 256 10.7, weights read early 11.1,
    #   by way of shared memory 11.6; 4 of 128 11.4; 2 of 256 11.4; 8 of 256 11.8; 2 of 512 12.0.
    #   Hot (6.4) 7.9, 7.2, 7.7, 7.9; 7.7; 7.3; 8.5; 8.7. bf16 12.2 and 10.7; a weight and a bias of
    #   float32 15.0 and 10.8
    # fp16 4096 columns by rows, one row and 4 of 256: 4096 (18.0) 20.2 and 19.2; 1536 (8.1) 9.9 and
    #   8.9; 1056 (6.2) 7.9 and 7.4; 792 (5.2) 5.9 and 6.5; 264 (2.0) 2.8 and 3.5
    # 4096x2048 (10.1): 11.6, 4 of 128 10.8. 4096x3072 (13.9): 16.6, 4 of 192 15.5, 2 of 192 15.5
    if chunks <= 512:
        blocks = 1024 // lanes
        layout = RowConfig(lanes, 1, vector, False, blocks_per_sm=blocks, rows_per_thread=4)
        return Share(layout, 2**18 // lanes)
    # 2048x4544 (10.9): one row of 192 threads 14.6, 2 of 288 12.5, weights read early 12.5, 2 of
    #   192 13.1, 4 of 288 13.3; hot (7.2) 11.2, 9.4, 9.5, 9.2, -. 4096 rows (19.7) 25.6 and 21.1;
    #   1056 rows (6.7) 9.0 and 7.8; 264 rows 3.1 and 3.3
    # 4096x5120 (21.8): one row of 160 27.6, 2 of 320 23.9, 4 23.6. 2048x8192 (17.9): one row of 256
    #   21.6, 2 of 512 20.4, 4 20.5
    layout = RowConfig(lanes, 1, vector, False, blocks_per_sm=1152 // lanes, rows_per_thread=2)
    # The layout of many rows that reads them twice took 204.3 at 32768x4544 (139.9).
    return Share(layout, 2**18 // lanes, alone=chunks % 128 != 0)


def _rms_norm(chunks: int, vector: int, dtype: str) -> Share | None:
    lanes = whole_warps(chunks)
    # float32 8192x1600 (26.3): read twice 28.3, 2 rows of 416 26.2, of 224 26.5, 4 of 416 27.1;
    #   4096 rows (14.7) one row of 224 14.5, 2 of 416 14.6
    if dtype == "float32":
        if not 256 < chunks <= 512 or not _filled(chunks, 1):
            return None
        layout = RowConfig(lanes, 1, vector, True, blocks_per_sm=2048 // lanes, rows_per_thread=2)
        return Share(layout, 6144, alone=True)
    # 2048x4096 (10.1): one row of 256 threads 11.0, 4 of 512 10.2, 4 of 256 10.4, 2 of 512 11.2, 8
    #   of 512 10.7; hot (6.4) 6.7, 6.9, 6.9, 6.7, 7.4. By rows, one row of 256 and 4 of 512: 4096
    #   (18.0) 18.9 and 19.0; 1536 (8.2) 8.9 and 8.4; 1056 (6.2) 6.3 and 6.9; 264 (2.0) 2.4 and 2.7
    # 4096x2048 (10.0): one row of 128 10.8, 4 of 256 10.2, hot (6.4) 6.5 and 6.9
    # 4096x3072 (14.0): one row of 192 13.9, 2 of 384 14.1, 4 14.9
    if chunks in (256, 512):
        layout = RowConfig(lanes, 1, vector, True, blocks_per_sm=2048 // lanes, rows_per_thread=4)
        return Share(layout, 3 * 2**18 // lanes)
    # 4096x5120 (21.8): one row of 320 23.9, 2 of 640 23.0, 4 23.1
    # 2048x8192 (17.9): one row of 512 19.1, 4 of 512 19.2, 2 of 1024 20.7
    # 12608x1024 fp16 (14.4): one row of 64 14.6, 2 14.6
    if chunks == 640:
        layout = RowConfig(lanes, 1, vector, True, blocks_per_sm=3, rows_per_thread=2)
        return Share(layout, 2048)
    return None


def _filled(chunks: int, accesses: int) -> bool:
    """Whether few of the accesses of whole warps are outside of the row."""
    return whole_warps(-(-chunks // accesses)) * accesses * 8 <= chunks * 9
