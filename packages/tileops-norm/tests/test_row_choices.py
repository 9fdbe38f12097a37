"""The layouts of rows: they cover every width, and are those that were measured to be fastest."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from tileops.core.errors import KernelBuildError
from tileops.norm.rows import choices, configs, ops, programs
from tileops.norm.rows.configs import GroupConfig, RowConfig, WideConfig

from .test_row_programs import OPS

DTYPES = ("float16", "bfloat16", "float32")
PLACINGS = ("registers", "on_chip", "streaming")
ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_unheard_of")
#: The neighbours of everything at which a layout may change, and much of what is between.
WIDTHS = sorted(
    {
        w
        for w in (
            *range(1, 300),
            *range(300, 4200, 37),
            *(
                w + d
                for p in range(8, 19)
                for w in (2**p, 3 * 2 ** (p - 1), 5 * 2 ** (p - 2))
                for d in (-8, -1, 0, 1, 8)
            ),
        )
        if w <= configs.MAX_WIDTH
    }
)


def assert_valid(config: Any, n: int, dtype: str, aligned: bool, arch: str, where: Any) -> None:
    """The layout reaches the whole row, and is one that CUDA can launch and memory can serve."""
    chunks = math.ceil((n + (config.vector - 1 if config.phased else 0)) / config.vector)
    assert config.accesses(n) * config.lanes * config.cluster >= chunks, where
    assert config.vector * configs.ITEMSIZE[dtype] <= configs.ACCESS_BYTES, where
    if not aligned:
        assert (config.vector, config.phased) == (1, False), where
    # Rows start where an access may, or are phased with accesses of 16 bytes.
    if config.phased:
        assert config.vector * configs.ITEMSIZE[dtype] == configs.ACCESS_BYTES, where
    else:
        assert n % config.vector == 0, where
    lanes = config.lanes
    assert lanes % 32 == 0 or (lanes < 32 and 32 % lanes == 0), where
    # Rows of a cluster are those of all its threads.
    groups = config.rows_per_block if isinstance(config, RowConfig) else config.rows
    threads = lanes * (groups if config.cluster == 1 else 1)
    assert 1 <= threads <= 1024, where
    assert threads * config.blocks_per_sm <= 2048, where
    assert 1 <= config.cluster <= configs.MAX_CLUSTER, where
    assert config.cluster == 1 or arch.startswith(("sm_9", "sm_10")), where
    if isinstance(config, RowConfig):
        assert config.cluster == 1 or config.rows == 1, where
        assert not config.sharing or config.unshared() == "", where
        held = config.accesses(n) * config.vector * configs.ITEMSIZE[dtype]
        held *= config.rows_per_thread
        assert held <= 128 or config.vector == 1, where
        assert config.accesses(n) <= 128, where
    else:
        assert not isinstance(config, GroupConfig) or config.unheld(n) == "", where
        assert config.in_registers % config.unroll == 0, where
        assert config.in_shared % config.unroll == 0, where
        # Half of the registers of a thread of 1024, or of two blocks of 512.
        assert config.in_registers * config.vector * configs.ITEMSIZE[dtype] <= 128, where
        assert config.shared_bytes(dtype) <= configs.shared_limit(arch), where
        if isinstance(config, WideConfig) and config.step:
            # Nothing of what is read again is left out.
            assert config.streamed(n) == 0 or config.unroll % config.step == 0, where


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_width_has_a_layout(dtype: str, arch: str) -> None:
    for op in OPS:
        for aligned in (True, False):
            for n in WIDTHS:
                placing = choices.select(op, n, dtype, aligned, arch)
                choice = choices.choose(placing, op, n, dtype, aligned, arch)
                where = (op.name, n, aligned, placing, choice)
                assert_valid(choice.config, n, dtype, aligned, arch, where)
                if choice.several is not None:
                    assert_valid(choice.several, n, dtype, aligned, arch, where)
                    assert choice.several_rows > 1, where
                    assert choice.many is None or choice.several_rows < choice.many_rows, where
                    assert choice.several.cluster == choice.config.cluster, where
                if choice.many is not None:
                    assert_valid(choice.many, n, dtype, aligned, arch, where)
                    assert choice.many_rows > 1, where
                    layouts = [choice.config, choice.several or choice.config, choice.many]
                    assert configs.together(*layouts), where


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("aligned", [True, False])
def test_streaming_serves_every_width(dtype: str, aligned: bool) -> None:
    """It is what is left where nothing else fits, whatever ``select`` finds to fit."""
    for n in WIDTHS:
        for arch in ("sm_80", "sm_90a"):
            choice = choices.choose("streaming", ops.RMS_NORM, n, dtype, aligned, arch)
            assert_valid(choice.config, n, dtype, aligned, arch, (n, choice))


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_share_a_cluster_where_they_fill_it(dtype: str) -> None:
    """Of LayerNorm in half precision; wherever else the layout has no program, or was no gain."""
    for op in OPS:
        every = {n: choices.choose(choices.select(op, n, dtype), op, n, dtype) for n in WIDTHS}
        assert not any(isinstance(choice.several, GroupConfig) for choice in every.values())
        many = {n for n, choice in every.items() if isinstance(choice.many, GroupConfig)}
        grouped = op is ops.LAYER_NORM and dtype != "float32"
        assert many == ({98304, 131072, 196608, 262144} if grouped else set())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_have_a_block_each_where_it_holds_them(dtype: str, arch: str) -> None:
    """Those of 64 to 128 KiB, of RMSNorm; of 64 to 96, in half precision, of LayerNorm; and where
    rows of a cluster are what it was measured against."""
    for op in OPS:
        for n in WIDTHS:
            placing = choices.select(op, n, dtype, True, arch)
            many = choices.choose(placing, op, n, dtype, True, arch).many
            size = n * configs.ITEMSIZE[dtype]
            alone = isinstance(many, WideConfig) and many.cluster == 1 and size > 64 * 1024
            widest = 0
            if op is ops.RMS_NORM:
                widest = 128
            elif op is ops.LAYER_NORM and dtype != "float32":
                widest = 96
            expected = 64 < size / 1024 <= widest and size % 16 == 0 and arch == "sm_90a"
            assert alone == expected, (op.name, n)
            if alone:
                assert isinstance(many, WideConfig)
                assert many.threads * 8 * many.vector >= n
                layer = op is ops.LAYER_NORM
                assert many.products == layer
                held = many.in_registers if layer else many.streamed(n)
                assert held == many.accesses(n) <= 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensor_cores_add_up_what_they_can(dtype: str) -> None:
    """Half precision by full accesses, of ops that do not quantize, on cards whose L1 and clusters
    such rows were laid out for."""
    seen = set()
    for op in OPS:
        for n in WIDTHS:
            for arch in ("sm_80", "sm_90a"):
                for aligned in (True, False):
                    placing = choices.select(op, n, dtype, aligned, arch)
                    choice = choices.choose(placing, op, n, dtype, aligned, arch)
                    for config in (choice.config, choice.several, choice.many):
                        if config is None or not config.products:
                            continue
                        assert dtype != "float32"
                        assert config.vector == 8
                        assert not config.phased
                        assert not op.quantized
                        assert not op.modulated
                        assert arch == "sm_90a"
                        seen.add(op.name)
    every = {"layer_norm", "fused_add_layer_norm", "rms_norm", "fused_add_rms_norm"}
    assert seen == (every if dtype != "float32" else set())


def test_kernels_of_a_program_are_told_apart_by_their_threads() -> None:
    cluster = WideConfig(512, 8, 0, 0, 2, cluster=4)
    assert configs.together(cluster)
    assert configs.together(cluster, dataclasses.replace(cluster, threads=256))
    assert configs.together(cluster, WideConfig(1024, 8, 0, 0, 8))
    assert not configs.together(cluster, WideConfig(512, 8, 0, 0, 8))
    assert not configs.together(cluster, dataclasses.replace(cluster, cluster=2))
    assert not configs.together(
        cluster, dataclasses.replace(cluster, cluster=2), WideConfig(1024, 8, 0, 0, 8)
    )
    assert configs.together(WideConfig(512, 8, 0, 0, 2), WideConfig(512, 8, 0, 0, 8))
    assert not configs.together(
        cluster, dataclasses.replace(cluster, threads=256), WideConfig(1024, 8, 0, 0, 8)
    )


def test_kernels_that_cannot_be_told_apart_are_refused() -> None:
    cluster = WideConfig(128, 8, 4, 4, 4, cluster=2)
    build = configs.Build(16384, "bfloat16", cluster, WideConfig(128, 8, 0, 0, 8), 5)
    with pytest.raises(
        KernelBuildError,
        match=r"^rms_norm: one program cannot have kernels of .*threads=128.*: clusters must be of "
        r"one size; where only some have them, of one number of threads that no other has$",
    ):
        programs.program(ops.RMS_NORM, build)


@pytest.mark.parametrize(
    ("op", "n", "dtype", "lanes", "accesses", "rows"),
    [
        (ops.RMS_NORM, 128, "bfloat16", 16, 1, 8),
        (ops.RMS_NORM, 511, "bfloat16", 128, 4, 1),
        (ops.LAYER_NORM, 261, "float32", 32, 9, 4),
        (ops.LAYER_NORM, 1600, "float32", 128, 4, 1),
        (ops.LAYER_NORM, 4096, "float16", 128, 4, 1),
        (ops.LAYER_NORM, 4544, "bfloat16", 192, 3, 1),
        (ops.ADA_LAYER_NORM, 1152, "float16", 32, 5, 4),
        (ops.ADA_LAYER_NORM, 2432, "bfloat16", 160, 2, 1),
        (ops.ADA_LAYER_NORM, 3072, "bfloat16", 96, 4, 1),
        (ops.ADA_LAYER_NORM_ZERO, 1152, "float16", 96, 2, 1),
        (ops.ADA_LAYER_NORM_ZERO, 2432, "bfloat16", 160, 2, 1),
        (ops.ADA_LAYER_NORM_ZERO, 3072, "bfloat16", 96, 4, 1),
    ],
)
def test_few_rows_have_the_layout_that_was_fastest(
    op: Any, n: int, dtype: str, lanes: int, accesses: int, rows: int
) -> None:
    """Of those that were measured: a rule that moves must not move them in silence."""
    config = choices.choose("registers", op, n, dtype).config
    assert isinstance(config, RowConfig)
    assert (config.lanes, config.accesses(n), config.rows) == (lanes, accesses, rows)


@pytest.mark.parametrize(
    ("op", "n", "dtype", "lanes", "early", "rows", "blocks", "from_rows", "others"),
    [
        (ops.LAYER_NORM, 1024, "float16", 64, False, 2, 1, 4096, None),
        (ops.LAYER_NORM, 2048, "bfloat16", 128, False, 4, 8, 2048, None),
        (ops.LAYER_NORM, 3072, "bfloat16", 192, False, 4, 5, 1365, 8192),
        (ops.LAYER_NORM, 4096, "float16", 256, False, 4, 4, 1024, 6144),
        (ops.LAYER_NORM, 4544, "bfloat16", 288, False, 2, 4, 910, None),
        (ops.LAYER_NORM, 5120, "bfloat16", 320, False, 2, 3, 819, 4916),
        (ops.LAYER_NORM, 8192, "bfloat16", 512, False, 2, 2, 512, 3072),
        (ops.LAYER_NORM, 1600, "float32", 224, True, 2, 1, 4096, None),
        (ops.LAYER_NORM, 261, "float32", 32, True, 2, 1, 8192, None),
        (ops.RMS_NORM, 2048, "bfloat16", 256, True, 4, 8, 3072, None),
        (ops.RMS_NORM, 4096, "bfloat16", 512, True, 4, 4, 1536, 6144),
        (ops.RMS_NORM, 5120, "bfloat16", 640, True, 2, 3, 2048, 4916),
        (ops.RMS_NORM, 1600, "float32", 416, True, 2, 4, 6144, None),
    ],
)
def test_several_rows_share_a_weight_as_was_fastest(
    op: Any,
    n: int,
    dtype: str,
    lanes: int,
    early: bool,
    rows: int,
    blocks: int,
    from_rows: int,
    others: int | None,
) -> None:
    """As for few; and from how many rows on, up to how many."""
    choice = choices.choose("registers", op, n, dtype)
    config = choice.several
    assert isinstance(config, RowConfig)
    found = (config.lanes, config.early, config.rows_per_thread, config.blocks_per_sm)
    assert (*found, choice.several_rows) == (lanes, early, rows, blocks, from_rows)
    assert (choice.many_rows if choice.many else None) == others


@pytest.mark.parametrize(
    ("op", "n", "dtype"),
    [
        (ops.RMS_NORM, 128, "bfloat16"),
        (ops.RMS_NORM, 511, "bfloat16"),
        (ops.RMS_NORM, 1024, "float16"),
        (ops.RMS_NORM, 3072, "bfloat16"),
        (ops.RMS_NORM, 4095, "bfloat16"),
        (ops.RMS_NORM, 8192, "bfloat16"),
        (ops.RMS_NORM, 261, "float32"),
        (ops.LAYER_NORM, 1152, "float16"),
        (ops.LAYER_NORM, 4095, "float16"),
        (ops.FUSED_ADD_LAYER_NORM, 4096, "float16"),
        (ops.ADA_LAYER_NORM, 3072, "bfloat16"),
        (ops.RMS_NORM_PER_TOKEN_QUANT, 4096, "bfloat16"),
    ],
)
def test_rows_that_gain_nothing_share_nothing(op: Any, n: int, dtype: str) -> None:
    assert choices.choose("registers", op, n, dtype).several is None


@pytest.mark.parametrize(
    ("op", "n", "dtype", "threads", "accesses", "unroll", "cluster", "blocks"),
    [
        (ops.LAYER_NORM, 4096, "bfloat16", 128, 4, 4, 1, 12),
        (ops.ADA_LAYER_NORM, 3072, "bfloat16", 192, 2, 2, 1, 8),
        (ops.ADA_LAYER_NORM, 5120, "bfloat16", 160, 4, 2, 1, 8),
        (ops.RMS_NORM, 65536, "float32", 512, 4, 2, 8, 4),
        (ops.LAYER_NORM, 20480, "float16", 320, 8, 8, 1, 2),
        (ops.LAYER_NORM, 32768, "bfloat16", 512, 8, 8, 1, 2),
        (ops.LAYER_NORM, 49152, "bfloat16", 1024, 6, 1, 1, 1),
        (ops.LAYER_NORM, 65536, "bfloat16", 512, 8, 1, 2, 2),
        (ops.LAYER_NORM, 200000, "bfloat16", 448, 8, 1, 7, 2),
        (ops.LAYER_NORM, 16384, "float32", 512, 8, 8, 1, 2),
        (ops.LAYER_NORM, 65536, "float32", 512, 8, 1, 4, 2),
        (ops.RMS_NORM, 98304, "bfloat16", 512, 8, 8, 3, 2),
        (ops.RMS_NORM, 131072, "bfloat16", 512, 8, 8, 4, 2),
        (ops.RMS_NORM, 262144, "float16", 512, 8, 8, 8, 2),
        (ops.FUSED_ADD_RMS_NORM, 200000, "bfloat16", 448, 8, 4, 7, 2),
        (ops.FUSED_ADD_LAYER_NORM, 12288, "bfloat16", 768, 2, 2, 1, 2),
        (ops.FUSED_ADD_LAYER_NORM, 16384, "bfloat16", 1024, 2, 2, 1, 2),
        (ops.FUSED_ADD_LAYER_NORM, 32768, "bfloat16", 1024, 4, 1, 1, 1),
        (ops.FUSED_ADD_LAYER_NORM, 16384, "float32", 1024, 4, 1, 1, 1),
        (ops.FUSED_ADD_LAYER_NORM, 262144, "bfloat16", 512, 8, 4, 8, 2),
        (ops.FUSED_ADD_RMS_NORM, 40960, "bfloat16", 320, 4, 2, 4, 4),
        (ops.FUSED_ADD_RMS_NORM, 65536, "bfloat16", 512, 4, 2, 4, 3),
        (ops.FUSED_ADD_RMS_NORM, 131072, "bfloat16", 512, 4, 2, 8, 3),
        (ops.FUSED_ADD_RMS_NORM, 262144, "bfloat16", 1024, 4, 4, 8, 1),
        (ops.FUSED_ADD_RMS_NORM, 65536, "float32", 512, 4, 2, 8, 3),
        (ops.FUSED_ADD_LAYER_NORM, 65536, "bfloat16", 512, 4, 2, 4, 3),
        (ops.FUSED_ADD_LAYER_NORM, 131072, "bfloat16", 512, 4, 2, 8, 3),
    ],
)
def test_many_rows_have_the_layout_that_was_fastest(
    op: Any,
    n: int,
    dtype: str,
    threads: int,
    accesses: int,
    unroll: int,
    cluster: int,
    blocks: int,
) -> None:
    """As for few."""
    choice = choices.choose(choices.select(op, n, dtype), op, n, dtype)
    config = choice.many or choice.config
    assert isinstance(config, WideConfig)
    found = (config.threads, config.accesses(n), config.unroll, config.cluster)
    assert (*found, config.blocks_per_sm) == (threads, accesses, unroll, cluster, blocks)


def test_long_rows_of_float32_that_layer_norm_reads_again_stay_in_registers() -> None:
    """Up to 512 accesses; the layout that reads twice took twice the time at 8192x1600."""
    assert choices.choose("registers", ops.LAYER_NORM, 1600, "float32").many is None
    assert choices.choose("registers", ops.LAYER_NORM, 4096, "float32").many is not None


def test_only_what_misses_wide_accesses_is_read_by_narrow_ones() -> None:
    assert choices.layout(4096, "bfloat16", True) == (8, False)
    assert choices.layout(4095, "bfloat16", True) == (8, True)
    assert choices.layout(4095, "float32", True) == (4, True)
    assert choices.layout(4095, "bfloat16", False) == (1, False)
    # Eight bytes are wide enough, and short rows are not worth a phase.
    assert choices.layout(4100, "bfloat16", True) == (4, False)
    assert choices.layout(515, "float16", True) == (1, False)


def test_choices_are_values() -> None:
    """Equal questions give equal, hashable layouts: they are part of a kernel's identity."""
    for placing in PLACINGS:
        first, second = (choices.choose(placing, ops.LAYER_NORM, 4096, "float16") for _ in range(2))
        assert first == second
        assert hash(first) == hash(second)
