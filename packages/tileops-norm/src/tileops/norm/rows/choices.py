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
    GroupConfig,
    RowConfig,
    WideConfig,
    power_of_two,
    shared_limit,
    together,
    whole_warps,
)
from tileops.norm.rows.ops import RowOp
from tileops.norm.rows.shares import share
from tileops.norm.rows.splits import held, reread, split
from tileops.norm.rows.splits import many as many_wide

__all__ = ["Choice", "Placing", "choose", "layout", "select"]

# Figures are µs on an H200, medians of replays of a CUDA graph; brackets hold the time in which
# torch.add(x, 1, out=y) moved as many bytes in the same run: one card differs from the next.
# Inputs go round through more than L2 unless "hot" is said. Tensors are bf16 with a weight of bf16
# unless said otherwise. Run A timed CUDA C++ of the same layouts, run B these programs at commit
# ed3da11. "Twice" is the layout that reads a row twice, and holds nothing.

Placing = Literal["registers", "on_chip", "streaming"]

#: Architectures whose blocks can form clusters, and whose L1 holds the rows that are read twice.
#: Only sm_90a was measured.
_CLUSTERS = ("sm_90a", "sm_100a", "sm_103a")

#: A row up to this many bytes is served by one block that holds it, or reads it twice.
_REGISTER_BYTES = 32 * 1024

#: Calls that read and write this much or more have another layout.
#: RMSNorm, registers against twice: 2048x8192 (17.1) 18.7 and 18.8; 4096x8192 (32.6) 34.5 and 34.1;
#: 8192x8192 (63.2) 65.8 and 64.9; 32768x8192 (251.3) 261.8 and 249.5; 32768x4096 (125.4) 129.3 and
#: 127.0.
_MANY_BYTES = 96 * 1024 * 1024

#: The same, where many rows have a block each and few a cluster: 132 rows take the time of one, and
#: the last ones have the card to themselves. RMSNorm of 65536: 1000 rows (61.5) 67.4, by clusters
#: 64.1; 1536 (94.4) 99.0 and 97.2; 2048 (126.8) 130.6; 4096 (252.3) 253.2 and 257.4. LayerNorm of
#: 49152: 1000 (47.3) 54.0 and 53.3; 5456 (250.7) 258.0 and 270.4.
_ALONE_BYTES = 384 * 1024 * 1024


class Choice(NamedTuple):
    """A layout, and others for calls of ``several_rows`` rows or more and of ``many_rows`` or more,
    where these are faster."""

    config: Config
    many: Config | None = None
    many_rows: int = 0
    several: Config | None = None
    several_rows: int = 0


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
    shared = share(op, n, dtype, *layout(n, dtype, aligned)) if placing == "registers" else None
    several: tuple[Config | None, int] = (None, 0)
    if shared is not None:
        several = (shared.config, shared.rows)
    if (
        many is None
        or many == few
        or not together(few, many)
        or many.shared_bytes(dtype) > shared_limit(arch)
        or (shared is not None and shared.alone)
    ):
        return Choice(few, None, 0, *several)
    shaped = 3 if op.added else 1
    written = "float8_e4m3fn" if op.quantized else dtype
    moved = n * (shaped * ITEMSIZE[dtype] + ITEMSIZE[written])
    many_rows = -(-_MANY_BYTES // moved)
    if few.cluster > many.cluster:
        many_rows = -(-_ALONE_BYTES // moved)
    elif shared is not None and shared.rows >= many_rows:
        several = (None, 0)
    return Choice(few, many, many_rows, *several)


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
        return _narrow(op, n, vector, dtype)
    # fused_add_layer_norm 16384x16384 (503.3): 507.0, held by 512 threads of 4 562.0, read again by
    #   distances 575.5; 64 and 500 rows (3.4, 17.9): 3.9, 18.1, and held 4.6, 21.7; 20000x12288
    #   (461.8): 457.7, 476.2, 457.3. Needs an L1 that holds the rows.
    if op.added and op.statistics == "layer" and not op.gated and arch in _CLUSTERS:
        full = vector * ITEMSIZE[dtype] == ACCESS_BYTES and not phased
        if full and dtype != "float32" and chunks > 1024:
            return reread(chunks, vector, 2, products=True)
    # 262144x128 (33.4): 16 lanes of 1 access 33.5, 8 of 2 33.9, 4 of 4 34.9; another card (33.7)
    #   33.8 and 34.1
    if chunks <= 64:
        lanes = power_of_two(chunks if chunks <= 16 else -(-chunks // 2))
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
    elif op.statistics == "layer" and vector * ITEMSIZE[dtype] == ACCESS_BYTES and not phased:
        accesses = _fitting(op, chunks, dtype, accesses)
    lanes = whole_warps(-(-chunks // accesses))
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


def _fitting(op: RowOp, chunks: int, dtype: str, accesses: int) -> int:
    """Accesses of each of up to 512 threads, so that few are outside of the row; ``accesses`` where
    nothing else was measured.

    layer_norm 2048x4544 (10.8): 3 accesses 14.5, 2 14.0, 4 16.8; hot (7.4) 11.1, 11.9, 13.1.
    ada_layer_norm 8192x2432 (20.4): 2 26.7, 5 26.9, 4 32.0; 4096x1152 (6.6): 5 9.1, 3 9.2, 2 9.1;
    hot (4.0) 6.4, 7.9, 8.0; 4096x3072 (13.6): 4 16.7, 2 17.4; 3520x4096 (15.5): 4 18.3, 2 19.1.
    ada_layer_norm_zero 4096x1152 (13.2): 2 13.6, 3 16.2; 8192x2432 (40.9): 2 42.2, 5 45.2, 4 47.2.
    """
    if dtype == "float32":
        return accesses
    found, fewest = accesses, 0
    for each in (4, 2) if op.added else (4, 3, 2, 5):
        lanes = whole_warps(-(-chunks // each))
        made = lanes * each
        if lanes <= 512 and -(-chunks // lanes) == each and (not fewest or made < fewest):
            found, fewest = each, made
    return found


def _narrow(op: RowOp, n: int, vector: int, dtype: str) -> RowConfig:
    """Rows of accesses that are less than 8 bytes: more of them a thread."""
    chunks = -(-n // vector)
    if chunks <= 512:
        # RMSNorm 8192x511 (6.1): 128 lanes of 4 accesses 7.6, 64 of 8 8.5, 32 of 16 9.6; hot (3.7)
        #   6.5, 7.0 and 7.0
        # layer_norm 50176x261 of float32 (26.9): 32 lanes 31.9, 64 43.7, 96 40.6
        short = op.statistics == "rms" and not (op.added or op.quantized) and dtype != "float32"
        lanes = min(power_of_two(-(-chunks // 4)), 128 if short and chunks > 256 else 32)
    else:
        lanes = min(whole_warps(-(-chunks // 16)), 256)
    return RowConfig(lanes, max(128 // lanes, 1), vector, early=chunks <= 8 * lanes)


def _many(
    op: RowOp, n: int, dtype: str, aligned: bool, arch: str
) -> WideConfig | GroupConfig | None:
    """The layout that holds nothing, and reads its rows again from L1; of wide rows see splits.py;
    None where there is no gain.

    That the first read asks the caches to keep the row, and the second to let it go, is what makes
    it fast: 32768x8192 in run A (252.0) took 250.1 so, and 259.2 with plain reads.
    """
    vector, phased = layout(n, dtype, aligned)
    size = n * ITEMSIZE[dtype]
    if arch not in _CLUSTERS or phased:
        return None
    widest = 32 * 1024 if op.quantized else 64 * 1024
    if vector * ITEMSIZE[dtype] < ACCESS_BYTES or size < 6 * 1024:
        return None
    if size > widest:
        return many_wide(op, n, dtype)
    chunks = n // vector
    if op.statistics == "layer" and not op.modulated:
        if op.added and dtype != "float32" and chunks > 1024:
            return None  # what serves few rows is the fastest of many, too
        alone = _alone(op, chunks, dtype)
        if alone is not None:
            return alone
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
        if whole_warps(-(-chunks // accesses)) > room // 2:
            return None
    elif op.added:
        # fused_add_rms_norm 32768x4096 (252.7): 256 threads of 2, 6 blocks 251.7, 8 blocks 252.5,
        #   128 threads 254.2; registers 258.3. ada_layer_norm_zero 27280x3072 (158.5): 192 threads
        #   of 2, 8 blocks 158.9, 10 blocks 163.7; registers 162.3
        accesses, unroll, room = 2, 2, 1536
    elif op.statistics == "layer":
        # layer_norm 32768x4096 (125.9): 128 threads of 4, 12 blocks, in one group 129.7, in groups
        #   of 2 130.8, 256 threads 143.3; registers 135.1
        # ada_layer_norm 75600x5120 (363.5): 160 threads of 4, 8 blocks 369.3, 9 blocks, which spill
        #   419.7, 320 threads 466.9. 27280x3072 (160.7): 192 of 2 151.7, 96 of 4 with 16 blocks
        #   168.5
        accesses, unroll, room = 4, 4, 1536
        if op.modulated and chunks <= 512:
            accesses, unroll = 2, 2
        elif op.modulated:
            unroll, room = 2, 1280
        elif dtype == "float32":
            # 8192x1600 (26.3): registers 27.7, 128 threads in groups of 2 29.5, in one group, which
            #   spills, 55.0
            if chunks <= 512:
                return None
            unroll = 2
        elif chunks % 128:
            # 2048x4544 (10.8): 288 threads of 2 14.6, 160 of 4, which spill, 23.7
            accesses, unroll = 2, 2
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
    threads = whole_warps(-(-chunks // accesses))
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


def _alone(op: RowOp, chunks: int, dtype: str) -> WideConfig | None:
    """Layer normalization of rows whose weight and bias fill what L1 has left, which one or two
    blocks a multiprocessor read at once; None for others.

    layer_norm 8192x32768 (250.9): products of tensor cores 254.4, held in registers 258.8, by 1024
    threads of 4 263.4, by distances 362.8; 10912x24576 (252.0): 253.3, 768 threads of 4 251.8, by
    distances 257.1; 13000x20480 (249.2): 250.9 and 267.3. 8192x16384 of float32 (252.5): 252.6,
    1024 threads of 4 286.2, held 257.8, in groups of 4 283.7.
    fused_add_layer_norm 4096x16384 of float32 (253.8): held 256.4, twice 265.8.
    """
    vector = ACCESS_BYTES // ITEMSIZE[dtype]
    wide = dtype == "float32"
    if chunks * ACCESS_BYTES <= (48 if wide else 32) * 1024:
        return None
    if op.added:
        return held(chunks, vector, 1, accesses=4, products=False)
    return reread(chunks, vector, 8, products=not wide)


def _on_chip(op: RowOp, n: int, dtype: str, aligned: bool, arch: str) -> Config:
    """One block a row, or one cluster: in registers and shared memory."""
    vector, phased = layout(n, dtype, aligned)
    size = n * ITEMSIZE[dtype]
    chunks = _chunks(n, vector, phased)
    full = vector * ITEMSIZE[dtype] == ACCESS_BYTES
    if arch in _CLUSTERS and full and not phased:
        clustered = split(op, n, dtype)
        if clustered is not None:
            return clustered
    cluster = 1
    if arch in _CLUSTERS:
        cluster = min(power_of_two(-(-size // (256 * 1024))), MAX_CLUSTER)
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
