"""The program of short sinusoidal tables: where it is chosen, its builds, its results."""

from __future__ import annotations

import dataclasses
import math
import shutil

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.core.testing import assert_close_to_oracle
from tileops.positional import SinusoidalFwdOp
from tileops.positional.sinusoidal import kernels
from tileops.positional.sinusoidal.configs import (
    SHORT_BYTES,
    ShortConfig,
    SinusoidalConfig,
    choose_config,
    may_overlap,
)
from tileops.positional.sinusoidal.programs import SHORT_PASS_CONFIGS, short_sinusoidal

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def oracle(length: int, width: int, interleaved: bool) -> torch.Tensor:
    pair = torch.arange(width // 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 1e4 ** (-2 * pair / width)
    parts = [angle.sin(), angle.cos()]
    return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)


@pytest.mark.parametrize(
    ("length", "width", "interleaved", "dtype", "layout"),
    [
        # What an H200 measured, the entry's workloads among them.
        (512, 512, False, "float32", ShortConfig(64, 4, 2, True)),
        (1024, 1024, True, "float32", ShortConfig(256, 4, 2, True)),
        (1500, 1280, True, "float16", ShortConfig(160, 8, 2, True)),
        (1500, 1280, False, "float16", ShortConfig(96, 8, 2, True)),
        (4096, 1024, True, "bfloat16", ShortConfig(128, 8, 4, True)),
        (65536, 2048, True, "float32", SinusoidalConfig(256, 4, 8)),
        # To either side of both thresholds.
        (1025, 1024, True, "float32", ShortConfig(256, 4, 4, True)),
        (4096, 1024, True, "float32", ShortConfig(256, 4, 4, True)),
        (4097, 1024, True, "float32", SinusoidalConfig(256, 4, 8)),
    ],
)
def test_which_tables_are_short(
    length: int,
    width: int,
    interleaved: bool,
    dtype: str,
    layout: ShortConfig | SinusoidalConfig,
) -> None:
    assert choose_config(length, width, interleaved, dtype, "sm_90a") == layout


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_every_short_table_has_a_layout(dtype: str, itemsize: int, interleaved: bool) -> None:
    for width in (2, 6, 10, 64, 130, 1280, 2048, 2056, 20000, 2**20 + 2, 2**23 - 2, 2**23):
        longest = SHORT_BYTES // (width * itemsize)
        for length in {0, 1, 9, longest // 3, longest}:
            if length > longest:
                continue
            found = choose_config(length, width, interleaved, dtype, "sm_90a")
            where = (length, width, found)
            assert isinstance(found, ShortConfig), where
            columns = width if interleaved else width // 2
            assert columns % found.vector == 0, where
            assert not interleaved or found.vector % 2 == 0, where
            assert found.threads % 32 == 0, where
            assert 32 <= found.threads <= 256, where
            # Indices have 32 bits, and the second axis of a grid at most 65535 blocks.
            assert length * width // found.vector < 2**31, where
            assert -(-columns // (found.vector * found.threads)) < 2**16, where


@pytest.mark.parametrize(
    ("arch", "may"), [("sm_80", False), ("sm_89", False), ("sm_90a", True), ("sm_120a", True)]
)
def test_launches_overlap_from_hopper_on(arch: str, may: bool) -> None:
    assert may_overlap(arch) == may
    config = choose_config(512, 512, True, "float16", arch)
    assert isinstance(config, ShortConfig)
    assert config.overlap == may


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    ("dtype", "interleaved"), [("float16", True), ("float16", False), ("float32", True)]
)
def test_each_kind_of_short_program_builds(dtype: str, interleaved: bool, arch: str) -> None:
    config = choose_config(512, 512, interleaved, dtype, arch)
    assert isinstance(config, ShortConfig)
    program = tilelang_backend.build(
        lambda: short_sinusoidal(dtype, interleaved, config),
        arch=arch,
        pass_configs=SHORT_PASS_CONFIGS,
    )
    assert program.symbol == "short_sinusoidal"
    body = program.source[program.source.rindex("__launch_bounds__") :]
    # The store, and what is loaded, are whole accesses.
    store = {"float16": "*(uint4*)(((half_t*)Y)", "float32": "*(float4*)(((float*)Y)"}[dtype]
    assert body.count(store) == body.count("*)Y)") == (1 if interleaved else 2)
    assert "*(ulonglong2*)(((uint64_t*)F)" in body
    waits = "\n  cudaGridDependencySynchronize();\n  cudaTriggerProgrammaticLaunchCompletion();\n"
    assert (waits in body) == (arch == "sm_90a")
    assert body.count("cudaGridDep") == body.count("cudaTrigger") == (arch == "sm_90a")
    if arch == "sm_90a":
        # At the kernel's own level, where no thread is gone: all wait, and trigger after it.
        before = body[: body.index(waits)]
        assert before.count("{") - before.count("}") == 1
        assert "return" not in before
        assert "*)Y)" not in before
        assert "F)" not in body[body.index(waits) :]


def without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(*arguments: object) -> ShortConfig | SinusoidalConfig:
        config = choose_config(*arguments)  # type: ignore[arg-type]
        assert isinstance(config, ShortConfig)
        return dataclasses.replace(config, overlap=False)

    monkeypatch.setattr(kernels, "choose_config", choose)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("length", "width", "dtype", "interleaved", "overlap"),
    [
        # Rows that fill their last block and that do not, of one, two and four to a block; one
        # thread to a row, a few, and several blocks; accesses of each width.
        (1, 2, F32, True, True),
        (3, 2, BF16, False, True),
        (5, 6, F16, True, True),
        (4, 6, F32, False, True),
        (9, 10, BF16, True, True),
        (70, 64, F16, False, True),
        (71, 64, BF16, True, True),
        (17, 130, F32, False, True),
        (1, 1280, F16, False, True),
        (1500, 1280, F16, True, True),
        (1499, 1280, BF16, False, True),
        (1023, 1024, F32, True, True),
        (7, 2056, F32, False, True),
        (1031, 8198, F16, True, True),
        (123, 8200, BF16, False, True),
        (70001, 6, F32, True, True),
        (8451, 24, F16, False, True),
        (3, 6, F32, True, False),
        (1499, 1280, F16, False, False),
        (1027, 2056, F32, True, False),
    ],
)
def test_the_short_kernel(
    length: int,
    width: int,
    dtype: torch.dtype,
    interleaved: bool,
    overlap: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one graph with a fill before and a copy after, without a gap: what does not wait for the
    kernel before, or is not waited for, shows."""
    if not overlap:
        without_overlap(monkeypatch)
    op = SinusoidalFwdOp(length, width, interleaved=interleaved, dtype=dtype, device="cuda")
    op()
    (kernel,) = op.iter_kernels()
    table = torch.empty(length, width, dtype=dtype, device="cuda")
    launch = kernel.kernel.prepare(table)
    graph, copies = torch.cuda.CUDAGraph(), [torch.empty_like(table) for _ in range(4)]
    with torch.cuda.graph(graph):
        for copy in copies:
            table.fill_(math.nan)
            launch(table)
            launch(table)
            copy.copy_(table)
            launch(table)
            table.fill_(math.nan)
    graph.replay()
    exact = oracle(length, width, interleaved)
    assert op.serving_target == "tilelang"
    for copy in copies:
        assert_close_to_oracle(op, "table", copy, exact)
    assert table.isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("width", "interleaved", "dtype"),
    [(1024, True, F32), (2056, False, F32), (1280, False, F16), (130, True, BF16)],
)
def test_tables_to_either_side_of_the_threshold(
    width: int, interleaved: bool, dtype: torch.dtype
) -> None:
    """The longest short table, and one that is a row longer."""
    length = SHORT_BYTES // (width * dtype.itemsize)
    for rows, config in ((length, ShortConfig), (length + 1, SinusoidalConfig)):
        name = str(dtype).removeprefix("torch.")
        assert isinstance(choose_config(rows, width, interleaved, name, "sm_90a"), config)
        torch.full((rows, width), math.nan, dtype=dtype, device="cuda")
        op = SinusoidalFwdOp(rows, width, interleaved=interleaved, dtype=dtype, device="cuda")
        assert_close_to_oracle(op, "table", op(), oracle(rows, width, interleaved))


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [True, False])
def test_it_waits_for_other_streams_that_the_current_one_waits_for(captured: bool) -> None:
    """The kernel before is then one of another stream, which is slow, and fills the table too."""
    op = SinusoidalFwdOp(300, 256, device="cuda")
    op()
    (kernel,) = op.iter_kernels()
    table, copy = torch.empty(2, 300, 256, device="cuda")
    launch = kernel.kernel.prepare(table)
    side = torch.cuda.Stream()

    def step() -> None:
        current = torch.cuda.current_stream()
        table.fill_(1.0)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            table.fill_(math.nan)
        current.wait_stream(side)
        launch(table)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            copy.copy_(table)
            table.fill_(math.nan)
        current.wait_stream(side)

    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graph.replay()
    else:
        step()
    assert_close_to_oracle(op, "table", copy, oracle(300, 256, True))
    assert table.isnan().all()
