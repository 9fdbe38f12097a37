"""The program of short sinusoidal tables: where it is chosen, its builds, its results."""

from __future__ import annotations

import math
import shutil

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.core.testing import assert_close_to_oracle
from tileops.positional import SinusoidalFwdOp
from tileops.positional.sinusoidal.configs import (
    SHORT_BYTES,
    ShortConfig,
    SinusoidalConfig,
    choose_config,
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
        (512, 512, False, "float32", ShortConfig(128, 1, 2, 1)),
        (1024, 1024, True, "float32", ShortConfig(128, 1, 4, 2)),
        (1500, 1280, True, "float16", ShortConfig(160, 1, 8, 4)),
        (1500, 1280, False, "float16", ShortConfig(160, 1, 4, 4)),
        (4096, 1024, True, "bfloat16", ShortConfig(128, 1, 8, 8)),
        (8192, 1024, True, "bfloat16", ShortConfig(128, 1, 8, 8)),
        (65536, 2048, True, "float32", SinusoidalConfig(256, 4, 8)),
        # To either side of both thresholds.
        (2048, 1024, True, "float16", ShortConfig(128, 1, 8, 4)),
        (2049, 1024, True, "float16", ShortConfig(128, 1, 8, 4)),
        (8193, 1024, True, "bfloat16", SinusoidalConfig(128, 8, 8)),
        (2048, 1024, True, "float32", ShortConfig(128, 1, 4, 2)),
        (2049, 1024, True, "float32", SinusoidalConfig(256, 4, 4)),
    ],
)
def test_which_tables_are_short(
    length: int,
    width: int,
    interleaved: bool,
    dtype: str,
    layout: ShortConfig | SinusoidalConfig,
) -> None:
    assert choose_config(length, width, interleaved, dtype) == layout


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_every_short_table_has_a_layout(dtype: str, itemsize: int, interleaved: bool) -> None:
    for width in (2, 6, 10, 64, 130, 1280, 2048, 2056, 20000, 2**20 + 2, 2**23 - 2, 2**23):
        longest = SHORT_BYTES[dtype] // (width * itemsize)
        for length in {0, 1, 9, longest // 3, longest}:
            if length > longest:
                continue
            found = choose_config(length, width, interleaved, dtype)
            where = (length, width, found)
            assert isinstance(found, ShortConfig), where
            columns = width if interleaved else width // 2
            assert columns % found.vector == 0, where
            assert not interleaved or found.vector % 2 == 0, where
            assert 128 <= found.columns * found.lines <= 256, where
            assert found.rows in (1, 2, 4, 8), where
            # Indices have 32 bits, and the second axis of a grid at most 65535 blocks.
            assert length * width // found.vector < 2**31, where
            assert -(-columns // (found.vector * found.columns)) < 2**16, where


@needs_nvcc
@pytest.mark.parametrize(
    ("dtype", "interleaved"), [("float16", True), ("float16", False), ("float32", True)]
)
def test_each_kind_of_short_program_builds(dtype: str, interleaved: bool) -> None:
    config = choose_config(512, 512, interleaved, dtype)
    assert isinstance(config, ShortConfig)
    program = tilelang_backend.build(
        lambda: short_sinusoidal(dtype, interleaved, config),
        arch="sm_90a",
        pass_configs=SHORT_PASS_CONFIGS,
    )
    assert program.symbol == "short_sinusoidal"
    body = program.source[program.source.rindex("__launch_bounds__") :]
    # The store, and what is loaded, are whole accesses.
    store = {
        ("float16", True): "*(uint4*)(((half_t*)Y)",
        ("float16", False): "*(uint2*)(((half_t*)Y)",
        ("float32", True): "*(float4*)(((float*)Y)",
    }[dtype, interleaved]
    assert body.count(store) == body.count("*)Y)") == (1 if interleaved else 2)
    assert "*(ulonglong2*)(((uint64_t*)F)" in body
    # One argument serves a sine and a cosine.
    assert body.count("__sinf(x[0])") == body.count("__cosf(x[0])") == (dtype == "float16")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("length", "width", "dtype", "interleaved"),
    [
        # Rows that fill their last block and that do not, one or four to a thread, one or several
        # side by side; one thread to a row, a few, and several blocks; accesses of each width.
        (1, 2, F32, True),
        (3, 2, BF16, False),
        (5, 6, F16, True),
        (4, 6, F32, False),
        (9, 10, BF16, True),
        (70, 64, F16, False),
        (71, 64, BF16, True),
        (17, 130, F32, False),
        (1, 1280, F16, False),
        (1500, 1280, F16, True),
        (1499, 1280, BF16, False),
        (1023, 1024, F32, True),
        (7, 2056, F32, False),
        (1021, 8198, F16, True),
        (123, 8200, BF16, False),
        (70001, 6, F32, True),
        (8451, 24, F16, False),
        (3, 6, F32, True),
        (1499, 1280, F16, False),
        (1027, 2056, F32, True),
    ],
)
def test_the_short_kernel(length: int, width: int, dtype: torch.dtype, interleaved: bool) -> None:
    op = SinusoidalFwdOp(length, width, interleaved=interleaved, dtype=dtype, device="cuda")
    op()
    (kernel,) = op.iter_kernels()
    table = torch.full((length, width), math.nan, dtype=dtype, device="cuda")
    kernel.kernel.prepare(table)(table)
    assert op.serving_target == "tilelang"
    assert_close_to_oracle(op, "table", table, oracle(length, width, interleaved))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("width", "interleaved", "dtype"),
    [(1024, True, F32), (2056, False, F32), (1280, False, F16), (130, True, BF16)],
)
def test_tables_to_either_side_of_the_threshold(
    width: int, interleaved: bool, dtype: torch.dtype
) -> None:
    """The longest short table, and one that is a row longer."""
    name = str(dtype).removeprefix("torch.")
    length = SHORT_BYTES[name] // (width * dtype.itemsize)
    for rows, config in ((length, ShortConfig), (length + 1, SinusoidalConfig)):
        assert isinstance(choose_config(rows, width, interleaved, name), config)
        torch.full((rows, width), math.nan, dtype=dtype, device="cuda")
        op = SinusoidalFwdOp(rows, width, interleaved=interleaved, dtype=dtype, device="cuda")
        assert_close_to_oracle(op, "table", op(), oracle(rows, width, interleaved))
