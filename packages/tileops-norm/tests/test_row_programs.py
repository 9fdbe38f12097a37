"""The row programs without a GPU: what they take, refuse and compile to."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import shutil
from typing import Any

import pytest

from tileops.core import tilelang_backend
from tileops.core.errors import KernelBuildError
from tileops.norm.rows import choices, configs, ops, programs
from tileops.norm.rows.configs import Build, GroupConfig, RowConfig, WideConfig

OPS = (
    *(ops.RMS_NORM, ops.LAYER_NORM, ops.FUSED_ADD_RMS_NORM, ops.FUSED_ADD_LAYER_NORM),
    *(ops.ADA_LAYER_NORM, ops.ADA_LAYER_NORM_ZERO, ops.RMS_NORM_PER_TOKEN_QUANT),
    ops.FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT,
)

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")


@pytest.mark.parametrize(
    ("op", "build", "names"),
    [
        (ops.RMS_NORM, Build(8, "float16", RowConfig(1, 128, 8, True)), "x y m eps"),
        (
            ops.RMS_NORM,
            Build(8, "float16", RowConfig(1, 128, 8, True), weight="float32", offset=True),
            "x weight y m eps offset",
        ),
        (
            ops.FUSED_ADD_LAYER_NORM,
            Build(8, "float16", RowConfig(1, 128, 8, True), bias="float16"),
            "x residual bias y residual_out m eps",
        ),
        (
            ops.ADA_LAYER_NORM_ZERO,
            Build(8, "float16", RowConfig(1, 128, 8, True)),
            "x residual gate scale shift y residual_out m eps gate_rows scale_rows shift_rows",
        ),
        (
            ops.FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT,
            Build(8, "float16", RowConfig(1, 128, 8, True), weight="float16", bounded=True),
            "x residual weight y row_scale residual_out m eps bound",
        ),
    ],
)
def test_a_program_is_launched_with_what_its_op_has(op: Any, build: Build, names: str) -> None:
    assert " ".join(programs.parameters(op, build)) == names


@functools.cache
def built(op: Any, build: Build, arch: str) -> tilelang_backend.Program:
    return tilelang_backend.build(
        lambda: programs.program(op, build), arch=arch, pass_configs=programs.PASS_CONFIGS
    )


def chosen(op: Any, n: int, dtype: str, arch: str, **more: Any) -> Build:
    placing = choices.select(op, n, dtype, True, arch)
    return Build(n, dtype, *choices.choose(placing, op, n, dtype, True, arch), **more)


@needs_nvcc
@pytest.mark.parametrize(
    ("op", "build", "expected"),
    [
        (
            ops.RMS_NORM,
            Build(4096, "bfloat16", RowConfig(256, 1, 8, True), weight="float32"),
            ("rows::get<16, 0, false>", "rows::get<32, 1, true>", "__launch_bounds__(256, 1)"),
        ),
        (
            ops.LAYER_NORM,
            Build(513, "float16", RowConfig(64, 2, 8, True, phased=True), bias="float16"),
            ("rows::get_edge<2>", "rows::get_clamped<16, 2, 1>", "rows::put_edge<8, 2>"),
        ),
        (
            ops.FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT,
            Build(16384, "bfloat16", RowConfig(128, 1, 8, False, cluster=4), weight="bfloat16"),
            ("clusters::send", "rows::to_float8<8>", "rows::largest_of_row<128, 1, 4>"),
        ),
        (
            ops.ADA_LAYER_NORM_ZERO,
            Build(70000, "float16", WideConfig(1024, 8, 4, 4, 4)),
            ("shared", "gate_rows"),
        ),
        (
            ops.LAYER_NORM,
            Build(16384, "float16", GroupConfig(128, 8, 2, 4, 4, 4, 4), weight="float32"),
            ("rows::join_rows<4, 4, 4, 1>", "rows::get<32, 1, true>", "rows::add_products<4, 1, "),
        ),
        (
            ops.RMS_NORM,
            Build(16000, "bfloat16", WideConfig(512, 8, 0, 4, 4, products=True, step=2)),
            ("rows::add_products<4, 2, false>", "rows::take_products<2>"),
        ),
        (
            ops.LAYER_NORM,
            Build(1024, "float32", RowConfig(64, 2, 4, True, rows_per_thread=4), bias="float16"),
            ("rows::join_distances<4, 64, 2, true, true>", "rows::get<8, 1, true>"),
        ),
        (
            ops.FUSED_ADD_RMS_NORM,
            Build(1000, "bfloat16", RowConfig(32, 4, 8, True, rows_per_thread=2), weight="float32"),
            ("rows::join_squares<2, 32, 4>", "rows::get<32, 1, true>", "rows::keep_narrow<16>"),
        ),
    ],
)
def test_each_kind_of_program_builds(op: Any, build: Build, expected: tuple[str, ...]) -> None:
    """The CUDA compiles, with the accesses that it should have."""
    program = built(op, build, "sm_90a")
    assert program.symbol == op.name
    for text in expected:
        assert text in program.source


@needs_nvcc
@pytest.mark.parametrize(
    ("op", "n", "dtype", "bounds"),
    [
        (ops.RMS_NORM, 8192, "bfloat16", ["(512, 1)", "(512, 4)"]),
        (ops.LAYER_NORM, 4096, "bfloat16", ["(128, 1)", "(256, 4)", "(128, 12)"]),
        (ops.LAYER_NORM, 1600, "float32", ["(128, 1)", "(224, 1)"]),
    ],
)
def test_a_program_of_some_layouts_holds_all(
    op: Any, n: int, dtype: str, bounds: list[str]
) -> None:
    """A call with more rows than ``many_rows`` builds nothing: the other layouts are there."""
    build = chosen(op, n, dtype, "sm_90a", weight=dtype)
    source = built(op, build, "sm_90a").source
    assert sorted(re.findall(r"__launch_bounds__(\(.*?\))", source)) == sorted(bounds)


def test_the_number_of_rows_chooses_among_all_layouts() -> None:
    """By two comparisons, the first of which finds few rows."""
    build = chosen(ops.LAYER_NORM, 4096, "bfloat16", "sm_90a", weight="bfloat16")
    text = str(programs.program(ops.LAYER_NORM, build))
    found = [int(n) for n in re.findall(r"if m < T.int64\((\d+)\)", text)]
    assert found == [build.several_rows, build.many_rows]
    assert 1 < build.several_rows < build.many_rows


@needs_nvcc
@pytest.mark.parametrize(
    ("config", "exchange"),
    [
        (RowConfig(256, 1, 8, True), "largest_of_row<256, 1, 1>"),
        (WideConfig(256, 8, 0, 0, 2, blocks_per_sm=8), "largest_of_row<256, 1, 1>"),
    ],
)
def test_a_quantized_row_has_one_exchange(config: Any, exchange: str) -> None:
    """Of the sum and of the largest at once; rows that are read again have one of their own."""
    op, build = ops.RMS_NORM_PER_TOKEN_QUANT, Build(4096, "bfloat16", config, weight="bfloat16")
    source = built(op, build, "sm_90a").source
    kernel = source[source.rindex("__launch_bounds__") :]
    assert kernel.count("__syncthreads()") == 1
    assert kernel.count(f"rows::{exchange}") == 1


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a"])
def test_other_architectures_build(arch: str) -> None:
    """What holds rows in shared memory, quantizes, and on some spans a cluster."""
    op = ops.RMS_NORM_PER_TOKEN_QUANT
    build = chosen(op, 200000, "bfloat16", arch, weight="bfloat16")
    assert built(op, build, arch).symbol == op.name


@pytest.mark.parametrize(
    ("op", "n", "dtype", "arch"),
    [
        # The most that each architecture's layouts ask for, or near it.
        (ops.RMS_NORM_PER_TOKEN_QUANT, 262144, "bfloat16", "sm_90a"),
        (ops.FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT, 65528, "float32", "sm_90a"),
        (ops.RMS_NORM_PER_TOKEN_QUANT, 81912, "bfloat16", "sm_80"),
        (ops.ADA_LAYER_NORM_ZERO, 40961, "float16", "sm_89"),
        (ops.LAYER_NORM, 65536, "bfloat16", "sm_90a"),
    ],
)
def test_a_program_asks_for_the_shared_memory_that_its_layout_says(
    op: Any, n: int, dtype: str, arch: str
) -> None:
    """Whether a layout fits is decided by ``shared_bytes``, before anything is built."""
    tilelang = pytest.importorskip("tilelang")
    build = chosen(op, n, dtype, arch, weight=None if op.modulated else dtype)
    config = build.config
    assert isinstance(config, WideConfig)
    target = tilelang.tvm.target.Target({"kind": "cuda", "arch": arch})
    with tilelang.tvm.transform.PassContext(config=programs.PASS_CONFIGS), target:
        lowered = tilelang.lower(programs.program(op, build), target=target, target_host="c")
    (kernel,) = lowered.device_mod.functions.values()
    asked = int(kernel.attrs["dyn_shared_memory_buf"])
    held = config.in_shared * config.threads * config.vector * configs.ITEMSIZE[dtype]
    # What a quantized row's exact computation has besides, in whole KiB: device.py.
    static = 4 * (config.threads // 32 * config.cluster) + 8 if op.quantized else 0
    assert held < asked
    assert asked + math.ceil(static / 1024) * 1024 <= config.shared_bytes(dtype)
    assert config.shared_bytes(dtype) <= configs.shared_limit(arch)


GROUP = GroupConfig(512, 8, 2, 4, 4, 4, 8)


@pytest.mark.parametrize(
    ("config", "n", "why"),
    [
        (GROUP, 131072, ""),
        (dataclasses.replace(GROUP, rows=1, in_shared=0), 131072, ""),
        (dataclasses.replace(GROUP, rows=4, in_shared=12), 131072, ""),
        (
            dataclasses.replace(GROUP, rows=3, in_shared=8),
            131072,
            "rows must be 1, 2 or 4, not 3",
        ),
        (GROUP, 131064, "rows must fill all accesses"),
        (GROUP, 65536, "a thread has 4 accesses to keep"),
        (
            dataclasses.replace(GROUP, unroll=3),
            131072,
            "unroll must divide in_registers, and the 4 accesses of a row",
        ),
        (
            dataclasses.replace(GROUP, cluster=1),
            16384,
            "blocks are whole warps, and 2 to 8 of them a cluster",
        ),
    ],
)
def test_a_group_holds_whole_rows(config: GroupConfig, n: int, why: str) -> None:
    """All of each row is somewhere, and its sums come from where they are expected; what cannot
    hold a row builds no program."""
    assert config.unheld(n) == why
    build = Build(n, "bfloat16", config)
    if not why:
        assert programs.program(ops.LAYER_NORM, build) is not None
        return
    with pytest.raises(KernelBuildError) as caught:
        programs.program(ops.LAYER_NORM, build)
    assert str(caught.value) == f"layer_norm: {config} cannot hold rows of {n}: {why}"


@pytest.mark.parametrize(
    "op", [op for op in OPS if op is not ops.LAYER_NORM], ids=lambda op: op.name
)
def test_groups_are_of_rows_that_have_nothing_added(op: Any) -> None:
    """The program has no residual and no scale: another op's rows would be wrong in silence."""
    with pytest.raises(KernelBuildError) as caught:
        programs.program(op, Build(131072, "bfloat16", GROUP))
    assert str(caught.value) == f"{op.name}: no program has several of its rows in a cluster"


SUMMED = WideConfig(512, 8, 8, 0, 1, step=2, products=True)


@pytest.mark.parametrize(
    ("op", "dtype", "changes"),
    [
        (ops.LAYER_NORM, "float32", {"vector": 4}),
        (ops.RMS_NORM, "bfloat16", {"vector": 4}),
        (ops.LAYER_NORM, "float16", {"phased": True}),
        (ops.RMS_NORM_PER_TOKEN_QUANT, "bfloat16", {}),
        (ops.ADA_LAYER_NORM, "bfloat16", {}),
    ],
)
def test_tensor_cores_add_up_only_what_they_can(
    op: Any, dtype: str, changes: dict[str, Any]
) -> None:
    """Their numbers would be others, or the program has no place for what else is done."""
    config = dataclasses.replace(SUMMED, **changes)
    with pytest.raises(KernelBuildError) as caught:
        programs.program(op, Build(16000, dtype, config))
    assert str(caught.value) == (
        f"{op.name}: tensor cores add up rows of float16 and bfloat16, by accesses of 16 bytes "
        f"from a row's start, and none that are modulated or quantized; not rows of {dtype} in "
        f"{config}"
    )


@needs_nvcc
@pytest.mark.parametrize("op", [ops.LAYER_NORM, ops.FUSED_ADD_LAYER_NORM], ids=lambda op: op.name)
@pytest.mark.parametrize("cluster", [1, 2])
def test_what_warps_found_first_is_read_before_it_is_written_over(op: Any, cluster: int) -> None:
    """Where a row is looked at once more: racecheck had found warps that wrote what others were
    still to read. In a cluster both have a place of their own, from the beginning on."""
    config = dataclasses.replace(SUMMED, cluster=cluster)
    source = built(
        op, Build(32768 * cluster, "bfloat16", config, weight="bfloat16"), "sm_90a"
    ).source
    kernel = source[source.rindex("__launch_bounds__") :]
    if cluster == 1:
        # What is found, that the first is read, what is found once more.
        assert kernel.count("__syncthreads()") == 3
        return
    places = re.findall(r"buf_dyn_shmem \+ (\d+)\)", kernel)
    assert len(places) == len(set(places)) >= 4
    assert kernel.count("clusters::expect(") == 2


def test_what_is_read_again_is_read_in_whole_steps() -> None:
    """Else accesses would be left out in silence."""
    config = WideConfig(512, 8, 0, 0, 5, step=2, products=True)
    with pytest.raises(KernelBuildError) as caught:
        programs.program(ops.LAYER_NORM, Build(20480, "bfloat16", config))
    assert str(caught.value) == (
        "layer_norm: of 5 accesses that are read together 2 are no part, by which they are to be "
        f"read again: {config}"
    )


SHARING = RowConfig(64, 2, 8, False, rows_per_thread=2)


@pytest.mark.parametrize(
    ("op", "changes", "why"),
    [
        (ops.LAYER_NORM, {"rows_per_thread": 3}, "rows_per_thread must be one of (1, 2, 4, 8)"),
        (ops.LAYER_NORM, {"cluster": 2}, "a cluster has one row"),
        (ops.LAYER_NORM, {"phased": True}, "rows have phases of their own"),
        (ops.ADA_LAYER_NORM, {}, "no program has rows of it that share a weight"),
        (ops.RMS_NORM_PER_TOKEN_QUANT, {}, "no program has rows of it that share a weight"),
    ],
)
def test_rows_that_cannot_share_a_weight_build_no_program(
    op: Any, changes: dict[str, Any], why: str
) -> None:
    config = dataclasses.replace(SHARING, **changes)
    with pytest.raises(KernelBuildError, match=rf"^{op.name}: .*{re.escape(why)}"):
        programs.program(op, Build(1000, "bfloat16", config))


@needs_nvcc
@pytest.mark.parametrize("op", [ops.RMS_NORM, ops.LAYER_NORM], ids=lambda op: op.name)
def test_rows_that_share_a_weight_wait_once_for_all(op: Any) -> None:
    """For all of a block's rows at once; and a weight is read once: by two accesses a thread."""
    source = built(op, Build(1000, "bfloat16", SHARING, weight="bfloat16"), "sm_90a").source
    kernel = source[source.rindex("__launch_bounds__") :]
    assert kernel.count("__syncthreads()") == 0
    assert len(re.findall(r"rows::join_\w+<", kernel)) == 1
    assert kernel.count("rows::get<16, 1, true>") == 2
    assert kernel.count("rows::get<16, 0, false>") == 2 * SHARING.rows_per_thread


@needs_nvcc
@pytest.mark.parametrize(
    ("op", "config"),
    [
        (ops.LAYER_NORM, WideConfig(128, 8, 4, 4, 4, cluster=2)),
        (ops.RMS_NORM_PER_TOKEN_QUANT, WideConfig(128, 8, 0, 8, 4, cluster=2)),
    ],
)
def test_where_a_cluster_sends_to_nothing_else_is(op: Any, config: WideConfig) -> None:
    """TileLang 0.1.15 gives one place to buffers that it believes are not in use together."""
    source = built(op, Build(8192 * 2, "bfloat16", config, weight="bfloat16"), "sm_90a").source
    places = sorted(int(place) for place in re.findall(r"buf_dyn_shmem \+ (\d+)", source))
    # What the warps find, the barrier, the row.
    box, barrier, row = places
    kinds = 2 if op.quantized else 3
    assert barrier - box >= kinds * 4 * 2 * 4
    assert barrier % 8 == 0
    assert row - barrier >= 8
    assert row % 16 == 0


@needs_nvcc
def test_a_program_travels_without_tilelang(tmp_path: Any) -> None:
    """An exported library opens through ``load`` and offers the same entry function."""
    build = Build(4096, "bfloat16", RowConfig(256, 1, 8, True), weight="float32")
    program = built(ops.RMS_NORM, build, "sm_90a")
    path = tmp_path / "program.so"
    program.export(path)
    entry = tilelang_backend.load(path, program.symbol)
    with pytest.raises(RuntimeError, match="num_args should be 5"):
        entry()


def test_an_architecture_is_named_from_its_capability() -> None:
    """The "a" targets are those whose newest instructions need one."""
    named = {c: tilelang_backend.arch_of_capability(*c) for c in ((8, 0), (8, 9), (9, 0), (10, 0))}
    assert named == {(8, 0): "sm_80", (8, 9): "sm_89", (9, 0): "sm_90a", (10, 0): "sm_100a"}


def test_a_failing_build_says_what_failed() -> None:
    """Whatever a factory or the compiler raises arrives as one type, with its cause."""

    def factory() -> Any:
        raise ValueError("no such layout")

    with pytest.raises(tilelang_backend.KernelBuildError) as caught:
        tilelang_backend.build(factory, arch="sm_90a")
    assert str(caught.value) == "building factory for sm_90a failed: no such layout"
    assert isinstance(caught.value.__cause__, ValueError)
