"""Which program serves a row width, and how it is laid out, with the measurements that chose.

Pure Python: no torch, no TileLang.
"""

from __future__ import annotations

from typing import Literal

from .configs import (
    ACCESS_BYTES,
    ITEMSIZE,
    MAX_CLUSTER,
    Config,
    RowConfig,
    WideConfig,
    shared_limit,
)
from .ops import RowOp

__all__ = ["Placing", "choose", "choose_on_chip", "choose_registers", "choose_streaming", "select"]

Placing = Literal["registers", "on_chip", "streaming"]

#: Architectures whose blocks can form clusters.
_CLUSTERS = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")

#: A row up to this many bytes lives in the registers of one block.
_REGISTER_BYTES = 32 * 1024


def layout(n: int, dtype: str, aligned: bool) -> tuple[int, bool]:
    """Elements of one access, and whether the layout is phased, for rows of ``n``.

    ``aligned`` says that all of the call's tensors start at a multiple of 16 bytes; a caller that
    cannot say so gets single elements. Short rows that do not start where a wide access may get
    the widest at which all of them start: a phased row has two accesses that are not wide.
    """
    if not aligned:
        return 1, False
    vector = ACCESS_BYTES // ITEMSIZE[dtype]
    if n % vector and n >= 16 * vector:
        return vector, True
    while n % vector:
        vector //= 2
    return vector, False


def _chunks(n: int, vector: int, phased: bool) -> int:
    return -(-(n + (vector - 1 if phased else 0)) // vector)


def _power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()


def choose_registers(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> RowConfig:
    """The layout of a row in the registers of one block."""
    vector, phased = layout(n, dtype, aligned)
    chunks = _chunks(n, vector, phased)
    if chunks <= 64:
        lanes = _power_of_two(-(-chunks // 2))
        return RowConfig(lanes, 128 // lanes, vector, early=True, phased=phased)
    most = 512 if dtype == "float32" and vector == 4 and chunks > 4 * 256 else 256
    accesses = max(-(-chunks // most), 2)
    lanes = _whole_warps(-(-chunks // accesses))
    bytes_a_thread = accesses * vector * ITEMSIZE[dtype]
    # The registers that are left for each thread: 64 where it holds 128 bytes of the row.
    blocks = max(1024 // lanes, 1) if bytes_a_thread > 64 and vector > 1 else 1
    return RowConfig(
        lanes,
        max(128 // lanes, 1),
        vector,
        early=bytes_a_thread <= 32,
        phased=phased,
        blocks_per_sm=blocks if not op.added and op.statistics == "rms" else 1,
    )


def choose_on_chip(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> Config:
    """The layout of a row that is read once, in one block or in a cluster of blocks."""
    vector, phased = layout(n, dtype, aligned)
    size = n * ITEMSIZE[dtype]
    wide = vector * ITEMSIZE[dtype] == ACCESS_BYTES
    cluster = 1
    if arch in _CLUSTERS and size > 64 * 1024:
        cluster = min(_power_of_two(-(-size // (32 * 1024))), MAX_CLUSTER)
        if wide and size <= cluster * _REGISTER_BYTES:
            slice_chunks = -(-_chunks(n, vector, phased) // cluster)
            lanes = min(_whole_warps(-(-slice_chunks // 8)), 512)
            blocks = max(1024 // lanes, 1) if not op.added and op.statistics == "rms" else 1
            return RowConfig(
                lanes, 1, vector, early=False, cluster=cluster, phased=phased, blocks_per_sm=blocks
            )
    unroll = 8 if vector == 1 else 4
    threads, in_registers = (512, 0) if size <= cluster * 64 * 1024 else (1024, 4)
    if not wide:
        # A single element would take a register of its own: registers hold whole accesses only.
        in_registers = 0
    every = -(-_chunks(n, vector, phased) // (threads * cluster))
    in_shared = max(-(-(every - in_registers) // unroll), 1) * unroll
    return WideConfig(threads, vector, in_registers, in_shared, unroll, cluster, phased)


def choose_streaming(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> WideConfig:
    """The layout of a row of any width: as much as fits in shared memory, the rest read again."""
    vector, phased = layout(n, dtype, aligned)
    threads, unroll = 1024, 4
    group_bytes = threads * vector * ITEMSIZE[dtype] * unroll
    overhead = WideConfig(threads, vector, 0, 0, unroll).shared_bytes(dtype)
    room = (shared_limit(arch) - overhead) // group_bytes * unroll
    every = -(-_chunks(n, vector, phased) // (threads * unroll)) * unroll
    return WideConfig(threads, vector, 0, min(every, room), unroll, phased=phased)


def _whole_warps(threads: int) -> int:
    return -(-threads // 32) * 32


def choose(
    placing: Placing, op: RowOp, n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a"
) -> Config:
    """The layout of rows of ``n`` that are held as ``placing`` says."""
    if placing == "registers":
        return choose_registers(op, n, dtype, aligned, arch)
    if placing == "on_chip":
        return choose_on_chip(op, n, dtype, aligned, arch)
    return choose_streaming(op, n, dtype, aligned, arch)


def select(op: RowOp, n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a") -> Placing:
    """How rows of ``n`` elements of ``dtype`` are held on ``arch``."""
    if n * ITEMSIZE[dtype] <= _REGISTER_BYTES:
        return "registers"
    config = choose_on_chip(op, n, dtype, aligned, arch)
    if isinstance(config, RowConfig) or config.shared_bytes(dtype) <= shared_limit(arch):
        return "on_chip"
    return "streaming"
