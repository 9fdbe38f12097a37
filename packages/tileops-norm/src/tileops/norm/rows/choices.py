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
    RowConfig,
    WideConfig,
    shared_limit,
)
from tileops.norm.rows.ops import RowOp

__all__ = ["Choice", "Placing", "choose", "layout", "select"]

# Figures are µs on an H200, medians of replays of a CUDA graph; brackets hold the time in which
# torch.add(x, 1, out=y) moved as many bytes in the same run. Inputs go round through more than L2
# unless "hot" is said. Tensors are bf16 with a weight of bf16 unless said otherwise. Run A timed
# CUDA C++ of the same layouts, run B these programs at commit ed3da11. "Twice" is the layout that
# reads a row twice, and holds nothing.

Placing = Literal["registers", "on_chip", "streaming"]

#: Architectures whose blocks can form clusters, and whose L1 holds the rows that are read twice.
_CLUSTERS = ("sm_90a", "sm_100a", "sm_103a")

#: A row up to this many bytes is served by one block that holds it, or reads it twice.
_REGISTER_BYTES = 32 * 1024

#: Calls that read and write this much or more have another layout.
#: RMSNorm, registers against twice: 2048x8192 (17.1) 18.7 and 18.8; 4096x8192 (32.6) 34.5 and 34.1;
#: 8192x8192 (63.2) 65.8 and 64.9; 32768x8192 (251.3) 261.8 and 249.5; 32768x4096 (125.4) 129.3 and
#: 127.0.
_MANY_BYTES = 96 * 1024 * 1024


class Choice(NamedTuple):
    """A layout, and another for calls of ``many_rows`` rows or more, where that is faster."""

    config: Config
    many: Config | None = None
    many_rows: int = 0


def layout(n: int, dtype: str, aligned: bool) -> tuple[int, bool]:
    """Elements of one access, and whether the layout is phased, for rows of ``n``.

    ``aligned`` says that all of the call's tensors start at a multiple of 16 bytes; a caller that
    cannot say so gets single elements. Rows that do not start where a wide access may are phased
    where they are long and would else be read by accesses of less than 8 bytes: 32768x4100 (126.0)
    took 136.0 with 8 bytes and 143.4 phased; 50176x261 of float32 (26.7) took 79.8 phased.
    """
    if not aligned:
        return 1, False
    full = vector = ACCESS_BYTES // ITEMSIZE[dtype]
    while n % vector:
        vector //= 2
    if vector * ITEMSIZE[dtype] < 8 and n >= 1024:
        return full, True
    return vector, False


def choose(
    placing: Placing, op: RowOp, n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a"
) -> Choice:
    """The layouts of rows of ``n`` that are held as ``placing`` says."""
    if placing == "streaming":
        return Choice(_streaming(n, dtype, aligned, arch))
    make = _registers if placing == "registers" else _on_chip
    few = make(op, n, dtype, aligned, arch)
    many = _many(op, n, dtype, aligned, arch)
    if many is None or many == few:
        return Choice(few)
    shaped = 3 if op.added else 1
    written = "float8_e4m3fn" if op.quantized else dtype
    moved = n * (shaped * ITEMSIZE[dtype] + ITEMSIZE[written])
    return Choice(few, many, -(-_MANY_BYTES // moved))


def select(op: RowOp, n: int, dtype: str, aligned: bool = True, arch: str = "sm_90a") -> Placing:
    """How rows of ``n`` elements of ``dtype`` are held on ``arch``."""
    if n * ITEMSIZE[dtype] <= _REGISTER_BYTES:
        return "registers"
    config = _on_chip(op, n, dtype, aligned, arch)
    if isinstance(config, RowConfig) or config.shared_bytes(dtype) <= shared_limit(arch):
        return "on_chip"
    return "streaming"


def _registers(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> Config:
    """One block a row, or several rows."""
    # Accesses are plain. Where each replay wrote the same y, loads that take no place in L1 and
    # ``.cs`` stores were as good or better, and the figures below are with them; but where outputs
    # alternate, as a model's do, what such accesses touched is sooner gone from L2. In three runs
    # of `tileops bench`, 2048x4096: plain 10.1, hot 7.9; loads without L1 10.6, hot 9.4; with
    # ``.cs`` besides 10.3, hot 9.6. 262144x128: 33.7, 34.1 and 34.2.
    vector, phased = layout(n, dtype, aligned)
    chunks = _chunks(n, vector, phased)
    if vector * ITEMSIZE[dtype] < 8:
        return _narrow(n, vector)
    # 262144x128 (33.4): 8 lanes of 2 accesses 33.6, 16 of 1 33.6, 4 of 4 34.9
    if chunks <= 64:
        lanes = _power_of_two(-(-chunks // 2))
        return RowConfig(lanes, 128 // lanes, vector, True)
    # fused_add_rms_norm 2048x4096 (19.5): 128 threads of 4 accesses 17.9, 256 of 2 18.7; 4096x7168
    #   (56.7): 448 of 2 56.9, 224 of 4 58.5
    # layer_norm 2048x4096 fp16 (9.8): 128 of 4 11.9, 256 of 2 13.1; 8192x1600 of float32 (26.1):
    #   128 of 4 27.5, 224 of 2 33.8; ada_layer_norm 8192x2432 (20.2): 64 of 5 29.0, 160 of 2 32.2
    # rms_norm_per_token_quant 2048x4096 (8.0): 128 of 4 8.3, 256 of 2 9.3; hot 5.3 and 6.9; of a
    #   sum (15.8) 17.0 and 17.0, hot 15.1 and 14.3
    several = 2
    if op.statistics == "layer" or (op.added != op.quantized and chunks <= 512):
        several = 4
    # RMSNorm 2048x4096 (9.8): 10.4 with no_l1, 10.8 with const; hot (6.4) 6.8 and 6.6
    # RMSNorm 2048x8192 (17.1): 512 threads of 2 18.5, 256 of 4 18.8
    most = 256 if vector * ITEMSIZE[dtype] < ACCESS_BYTES else 512
    # One warp more, where a phased row touches one access more than it would.
    accesses = max(-(-chunks // (most + 32)), several)
    if chunks <= 128:
        accesses = 2
    lanes = _whole_warps(-(-chunks // accesses))
    # A quantized row's products are kept in float32: 64 registers a thread are enough, but the
    # compiler takes up to 96. Where some threads' last access is outside the row, they are not:
    # 15001 of a sum spilled 96 bytes with a weight of float32.
    crowded = op.quantized and accesses > 2 and n == lanes * accesses * vector
    blocks = max(1024 // lanes, 1) if crowded else 1
    # RMSNorm 32768x4095 (127.3): 7 blocks of 288 151, as many as the compiler leaves registers for
    #   194.8
    if phased and accesses <= 2 and not (op.added or op.quantized) and op.statistics == "rms":
        blocks = max(2048 // lanes, 1)
    return RowConfig(
        lanes,
        max(128 // lanes, 1),
        vector,
        early=accesses <= (4 if op.quantized else 2),
        phased=phased,
        blocks_per_sm=blocks,
    )


def _narrow(n: int, vector: int) -> RowConfig:
    """Rows of accesses that are less than 8 bytes: more of them a thread."""
    chunks = -(-n // vector)
    if chunks <= 512:
        lanes = min(_power_of_two(-(-chunks // 4)), 32)
    else:
        lanes = min(_whole_warps(-(-chunks // 16)), 256)
    return RowConfig(lanes, max(128 // lanes, 1), vector, early=chunks <= 8 * lanes)


def _many(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> WideConfig | None:
    """The layout that holds nothing, and reads its rows again from L1; None where it is no gain.

    That the first read asks the caches to keep the row, and the second to let it go, is what makes
    it fast: 32768x8192 in run A (252.0) took 250.1 so, and 259.2 with plain reads.
    """
    vector, phased = layout(n, dtype, aligned)
    size = n * ITEMSIZE[dtype]
    if arch not in _CLUSTERS or phased:
        return None
    widest = 32 * 1024 if op.quantized else 64 * 1024
    if vector * ITEMSIZE[dtype] < ACCESS_BYTES or not 6 * 1024 <= size <= widest:
        return None
    chunks = n // vector
    if op.quantized:
        # rms_norm_per_token_quant, accesses of 4 in one group and room for 1536 threads, against 2
        #   and 2048: 32768x4096 (96.5) 94.9 and 96.9; 32768x8192 (189.8) 186.3 and 192.6;
        #   16384x16384 (189.7) 185.9 and 200.6; registers at best 99.6, 199.4, 187.9
        # of a sum, 2 and 2048: 32768x4096 (219.9) 219.1; 32768x8192 (440.6) 435.9; 16384x16384
        #   (440.5) 434.2; room for 1536 218.3, 433.7, -; registers at best 239.8, 473.9, 462.7
        accesses, unroll, room = (2, 2, 2048) if op.added else (4, 4, 1536)
        # Where some threads' last access is outside the row, registers for 2048 threads have not
        # been enough with a weight of float32: 9000 of a sum spilled 72 bytes. Blocks of which but
        # one fits wait at their barriers.
        if chunks % 64 and op.added:
            room = 1280
        if _whole_warps(-(-chunks // accesses)) > room // 2:
            return None
    elif op.added:
        # fused_add_rms_norm 32768x4096 (252.7): 256 threads of 2, 6 blocks 251.7, 8 blocks 252.5,
        #   128 threads 254.2; registers 258.3. ada_layer_norm_zero 27280x3072 (158.5): 192 threads
        #   of 2, 8 blocks 158.9, 10 blocks 163.7; registers 162.3
        accesses, unroll, room = 2, 2, 1536
    elif op.statistics == "layer":
        # layer_norm 32768x4096 (125.9): 128 threads of 4, 12 blocks, in one group 129.7, in groups
        #   of 2 130.8, 256 threads 143.3; registers 135.1. ada_layer_norm 75600x5120 (361.7): 160
        #   threads, 9 blocks 381.1, 12 blocks 419.7, 320 threads 504.2; registers 485.5
        accesses, unroll, room = 4, 2 if op.modulated else 4, 1536
    else:
        # 512 threads of 2 took 249.5 at 32768x8192 (251.3), 256 of 4 260.8; 16384x8192 of float32
        #   (253.0): 1024 of 2 250.0, 512 of 4 255.5; run A, 16384x16384 (252.8): 512 of 4 253.6;
        #   16384x32768 (500.5): 1024 of 4, in one group 499.5
        accesses, unroll, room = 2, 2, 2048
        if chunks > 2048:
            accesses, unroll = 4, 4
        elif chunks > 1024 and dtype != "float32":
            accesses = 4
    most = 1024
    accesses = max(accesses, -(-chunks // (most * unroll)) * unroll)
    threads = _whole_warps(-(-chunks // accesses))
    return WideConfig(
        threads,
        vector,
        0,
        0,
        unroll,
        blocks_per_sm=max(room // threads, 1),
        load="last",
        again="first",
        columns="last",
        store="streaming" if size > 32 * 1024 else "none",
    )


def _on_chip(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> Config:
    """One block a row, or one cluster: in registers and shared memory."""
    vector, phased = layout(n, dtype, aligned)
    size = n * ITEMSIZE[dtype]
    chunks = _chunks(n, vector, phased)
    full = vector * ITEMSIZE[dtype] == ACCESS_BYTES
    if arch in _CLUSTERS and not op.quantized and full and not phased:
        split = _split(op, chunks, size, vector)
        if split is not None:
            return split
    cluster = 1
    if arch in _CLUSTERS:
        cluster = min(_power_of_two(-(-size // (256 * 1024))), MAX_CLUSTER)
    unroll = 8 if vector == 1 else 4
    threads, in_registers = (512, 0) if size <= 64 * 1024 else (1024, 4)
    if not full:
        # A single element would take a register of its own: registers hold whole accesses only.
        in_registers = 0
    every = -(-chunks // (threads * cluster))

    def holding(in_registers: int, unroll: int) -> WideConfig:
        in_shared = max(-(-(every - in_registers) // unroll), 1) * unroll
        return WideConfig(threads, vector, in_registers, in_shared, unroll, cluster, phased)

    if op.quantized:
        # 4096x65536 of a sum (440.5): all in shared memory, by 2 452.2, by 4 465.9; 4 accesses in
        #   registers 504.3; without a sum (189.8) 227.2 by 4, 235.3 with 4 in registers
        shared = holding(0, 2 if op.added and full else unroll)
        if shared.shared_bytes(dtype) <= shared_limit(arch):
            return shared
    return holding(in_registers, unroll)


def _split(op: RowOp, chunks: int, size: int, vector: int) -> Config | None:
    """A row in a cluster of blocks; None where one block is as fast, or nothing was measured.

    Several blocks on each multiprocessor, so that some read while others write. All rows have one
    layout: TileLang 0.1.15 launches every kernel of a program in the first one's clusters, so that
    few rows cannot have clusters of another size than many.
    """
    wide = vector * 4 == ACCESS_BYTES  # float32
    if size <= 64 * 1024 or (wide and size <= 128 * 1024):
        # 8192x32768 of float32 (505.9): one block of 1024 514.7, a cluster of 4 of 512 513.6
        return None
    if op.statistics == "layer":
        # layer_norm 4096x65536 (251.3): a cluster of 2 of 512, all in shared memory in one group
        #   291.8, 4 accesses of 8 in registers 309.5; one block of 1024 314.3; a cluster of 8 of
        #   256 in registers 357.7
        if op.added or op.modulated or wide or size > 128 * 1024:
            return None
        return _halves(chunks, vector, 2, in_registers=0, unroll=8, hints=True)
    if op.added:
        # fused_add_rms_norm 4096x40960 (317.2): 320 threads of 4 accesses in a cluster of 4, 2
        #   blocks 322.5; 160 in one of 8 335.2; one block of 1024 328.6
        # 2048x65536 (254.2): 256 in a cluster of 8, 3 blocks 262.1; 512 in one of 4 281.7; one
        #   block of 1024 280.1
        # 2048x131072 (503.6): a cluster of 2 of 512 of 16 549.7, 2 of its blocks 580.2; 512 of 4
        #   in one of 8 578.4; one block of 1024 603.7
        if size > 128 * 1024:
            cluster = 2 if size <= 256 * 1024 else MAX_CLUSTER
            return _halves(chunks, vector, cluster, blocks=1, hints=True)
        cluster = min(_power_of_two(-(-chunks // 1280)), MAX_CLUSTER)
        return _quarters(chunks, vector, cluster, 768)
    if size <= 128 * 1024:
        # RMSNorm 4096x65536 (251.3): a cluster of 2 of 512 of 8 accesses 258.3, one block of 1024
        #   260.4, a cluster of 8 of 256 of 4 269.2, one block of 512 of 16 274.3
        return _halves(chunks, vector, 2, hints=True)
    if size <= 256 * 1024 and wide:
        # 4096x65536 of float32 (506.1): 512 of 4 in a cluster of 8 530.1, one block of 1024 546.3
        return _quarters(chunks, vector, MAX_CLUSTER, 1024)
    # 8192x131072 (1001.9): a cluster of 2 of 512 of 16 accesses 1051.3, with hints 1063.9 and
    #   1085.7; one block of 1024 1073.5, without hints 1094.0; a cluster of 8 of 512 of 4 1168
    # 2048x262144 (501.1): a cluster of 8 of 512 of 8 547.3, with hints 542.9 and 551.1; of 256 of
    #   16 540.9 and 556.1; a cluster of 2 of 1024 545.2, without hints 567.7
    return _halves(chunks, vector, 2 if size <= 256 * 1024 else MAX_CLUSTER)


def _quarters(chunks: int, vector: int, cluster: int, room: int) -> RowConfig:
    """Four accesses of each thread, in registers; blocks of up to ``room`` threads in all."""
    threads = _whole_warps(-(-chunks // (cluster * 4)))
    return RowConfig(
        threads,
        1,
        vector,
        early=True,
        cluster=cluster,
        blocks_per_sm=max(room // threads, 1),
        load="no_l1",
        columns="const_no_l1",
        store="streaming",
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
    """Blocks of 512 threads, two on each multiprocessor where they fit."""
    every = -(-chunks // (512 * cluster))
    in_shared = max(-(-(every - in_registers) // unroll), 1) * unroll
    return WideConfig(
        512,
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


def _streaming(n: int, dtype: str, aligned: bool, arch: str) -> WideConfig:
    """Any width: as much as fits in shared memory, the rest read again."""
    vector, phased = layout(n, dtype, aligned)
    threads, unroll = 1024, 4
    group_bytes = threads * vector * ITEMSIZE[dtype] * unroll
    overhead = WideConfig(threads, vector, 0, 0, unroll).shared_bytes(dtype)
    room = (shared_limit(arch) - overhead) // group_bytes * unroll
    every = -(-_chunks(n, vector, phased) // (threads * unroll)) * unroll
    return WideConfig(threads, vector, 0, min(every, room), unroll, phased=phased, backwards=True)


def _chunks(n: int, vector: int, phased: bool) -> int:
    """The most accesses that a row of ``n`` can touch."""
    return -(-(n + (vector - 1 if phased else 0)) // vector)


def _power_of_two(value: int) -> int:
    """The smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()


def _whole_warps(threads: int) -> int:
    return -(-threads // 32) * 32
