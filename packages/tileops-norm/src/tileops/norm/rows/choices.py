"""Which program serves a row width, and how it is laid out, with the measurements that chose.

Pure Python: no torch, no TileLang.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tileops.norm.rows.configs import (
    ACCESS_BYTES,
    ITEMSIZE,
    MAX_CLUSTER,
    Config,
    Hint,
    RowConfig,
    WideConfig,
    shared_limit,
)
from tileops.norm.rows.ops import RowOp

__all__ = ["Choice", "Placing", "choose", "layout", "select"]

Placing = Literal["registers", "on_chip", "streaming"]

#: Architectures whose blocks can form clusters.
_CLUSTERS = ("sm_90a", "sm_100a", "sm_103a")

#: A row up to this many bytes lives in the registers of one block.
_REGISTER_BYTES = 32 * 1024


class Choice(NamedTuple):
    """A layout, and another for calls of ``many_rows`` rows or more, where that is faster."""

    config: Config
    many: Config | None = None
    many_rows: int = 0


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


def choose(
    placing: Placing, op: RowOp, n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a"
) -> Choice:
    """The layouts of rows of ``n`` that are held as ``placing`` says."""
    if placing == "streaming":
        return Choice(_streaming(n, dtype, aligned, arch))
    config = (_registers if placing == "registers" else _on_chip)(op, n, dtype, aligned, arch)
    again = _read_twice(op, n, dtype, aligned, arch)
    if again is None:
        return Choice(config)
    return Choice(config, again, -(-_MANY_BYTES // (2 * n * ITEMSIZE[dtype])))


def select(op: RowOp, n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a") -> Placing:
    """How rows of ``n`` elements of ``dtype`` are held on ``arch``."""
    if n * ITEMSIZE[dtype] <= _REGISTER_BYTES:
        return "registers"
    config = _on_chip(op, n, dtype, aligned, arch)
    if isinstance(config, RowConfig) or config.shared_bytes(dtype) <= shared_limit(arch):
        return "on_chip"
    return "streaming"


def _registers(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> RowConfig:
    vector, phased = layout(n, dtype, aligned)
    chunks = _chunks(n, vector, phased)
    load: Hint = "no_l1" if op.added else "const"
    if chunks <= 64:
        lanes = _power_of_two(-(-chunks // 2))
        return RowConfig(
            lanes, 128 // lanes, vector, early=True, phased=phased, load=load, store="streaming"
        )
    most = 512 if chunks > 4 * 256 and vector > 1 else 256
    accesses = max(-(-chunks // most), 2)
    lanes = _whole_warps(-(-chunks // accesses))
    return RowConfig(
        lanes,
        max(128 // lanes, 1),
        vector,
        early=accesses * vector * ITEMSIZE[dtype] <= 32,
        phased=phased,
        load=load,
        store="streaming",
    )


def _on_chip(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> WideConfig:
    vector, phased = layout(n, dtype, aligned)
    size = n * ITEMSIZE[dtype]
    chunks = _chunks(n, vector, phased)
    cluster = 1
    if arch in _CLUSTERS:
        cluster = min(_power_of_two(-(-size // (256 * 1024))), MAX_CLUSTER)
    unroll = 8 if vector == 1 else 4
    threads, in_registers = (512, 0) if size <= 64 * 1024 else (1024, 4)
    if vector * ITEMSIZE[dtype] < ACCESS_BYTES:
        # A single element would take a register of its own: registers hold whole accesses only.
        in_registers = 0
    every = -(-chunks // (threads * cluster))
    in_shared = max(-(-(every - in_registers) // unroll), 1) * unroll
    return WideConfig(threads, vector, in_registers, in_shared, unroll, cluster, phased)


def _read_twice(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> WideConfig | None:
    """The layout that holds nothing, and reads its rows again from L1."""
    vector, phased = layout(n, dtype, aligned)
    size = n * ITEMSIZE[dtype]
    if op.added or op.quantized or arch not in _CLUSTERS:
        return None
    if vector * ITEMSIZE[dtype] < ACCESS_BYTES or not 6 * 1024 <= size <= 64 * 1024:
        return None
    chunks = _chunks(n, vector, phased)
    threads, unroll = (1024, 4) if chunks > 2048 else (512, 2) if chunks > 512 else (256, 2)
    groups = -(-chunks // (threads * unroll))
    threads = _whole_warps(-(-chunks // (groups * unroll)))
    return WideConfig(
        threads,
        vector,
        0,
        0,
        unroll,
        phased=phased,
        blocks_per_sm=2048 // threads if op.statistics == "rms" else 1536 // threads,
        load="last",
        again="first",
        columns="last",
        store="streaming" if size > 16 * 1024 else "none",
    )


def _streaming(n: int, dtype: str, aligned: bool, arch: str) -> WideConfig:
    vector, phased = layout(n, dtype, aligned)
    threads, unroll = 1024, 4
    group_bytes = threads * vector * ITEMSIZE[dtype] * unroll
    overhead = WideConfig(threads, vector, 0, 0, unroll).shared_bytes(dtype)
    room = (shared_limit(arch) - overhead) // group_bytes * unroll
    every = -(-_chunks(n, vector, phased) // (threads * unroll)) * unroll
    return WideConfig(threads, vector, 0, min(every, room), unroll, phased=phased, backwards=True)


#: Calls that read and write this much or more leave L2, and read their rows twice.
_MANY_BYTES = 192 * 1024 * 1024


def _chunks(n: int, vector: int, phased: bool) -> int:
    """The most accesses that a row of ``n`` can touch."""
    return -(-(n + (vector - 1 if phased else 0)) // vector)


def _power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()


def _whole_warps(threads: int) -> int:
    return -(-threads // 32) * 32
