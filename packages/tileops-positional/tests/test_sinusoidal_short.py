"""The programs of short sinusoidal tables: where they are chosen, their builds, their results."""

from __future__ import annotations

import math
import shutil

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.core.testing import assert_close_to_oracle
from tileops.positional import SinusoidalFwdOp
from tileops.positional.sinusoidal.configs import (
    FACTORED_BYTES,
    FACTORED_ROWS,
    SHORT_BYTES,
    SHORT_ROWS,
    ShortConfig,
    SinusoidalConfig,
    choose_config,
)
from tileops.positional.sinusoidal.programs.short import (
    SHORT_PASS_CONFIGS,
    factored_sinusoidal,
    short_sinusoidal,
)

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def oracle(length: int, width: int, interleaved: bool, base: float = 1e4) -> torch.Tensor:
    pair = torch.arange(width // 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * base ** (-2 * pair / width)
    parts = [angle.sin(), angle.cos()]
    return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)


@pytest.mark.parametrize(
    ("length", "width", "interleaved", "dtype", "layout"),
    [
        # What an H200 measured, the entry's workloads among them.
        (512, 512, False, "float32", ShortConfig(128, 1, 2, 1, bits=7)),
        (512, 512, True, "float32", ShortConfig(128, 1, 4, 1, bits=7)),
        (1024, 1024, True, "float32", ShortConfig(128, 1, 4, 3)),
        (1500, 1280, True, "float16", ShortConfig(160, 1, 8, 4, bits=8)),
        (1500, 1280, False, "float16", ShortConfig(160, 1, 4, 4, bits=8)),
        (4096, 1024, True, "bfloat16", ShortConfig(128, 1, 8, 8)),
        (8192, 1024, True, "bfloat16", ShortConfig(128, 1, 8, 8)),
        (2048, 1024, True, "float32", ShortConfig(32, 4, 4, 8)),
        (4096, 1024, True, "float32", ShortConfig(32, 4, 4, 16)),
        (4096, 2048, True, "float32", ShortConfig(256, 1, 4, 4, along=True)),
        (4096, 4096, False, "float32", ShortConfig(128, 1, 2, 4, along=True)),
        (16384, 2048, True, "float32", ShortConfig(256, 1, 4, 4, along=True)),
        (65536, 2048, True, "float32", SinusoidalConfig(256, 4, 4)),
        (65536, 2048, True, "bfloat16", SinusoidalConfig(256, 8, 4)),
        (16384, 1024, False, "float16", SinusoidalConfig(128, 4, 4)),
        # To either side of the thresholds.
        (2048, 1024, True, "float16", ShortConfig(128, 1, 8, 4, bits=7)),
        (2049, 1024, True, "float16", ShortConfig(128, 1, 8, 4)),
        (8193, 1024, True, "bfloat16", SinusoidalConfig(128, 8, 4)),
        (513, 512, True, "float32", ShortConfig(128, 1, 4, 1)),
        (1025, 1024, True, "float32", ShortConfig(32, 4, 4, 8)),
        (4097, 1024, True, "float32", ShortConfig(256, 1, 4, 4, along=True)),
        (16385, 2048, True, "float32", SinusoidalConfig(256, 4, 4)),
        # Frequencies of more than 1024 pairs, or for more than 2**17 rows, are read.
        (64, 2048, True, "float16", ShortConfig(256, 1, 8, 1, bits=8)),
        (64, 2056, True, "float16", ShortConfig(129, 1, 8, 1)),
        (FACTORED_ROWS, 6, True, "float16", ShortConfig(3, 43, 2, 4, bits=2)),
        (FACTORED_ROWS + 1, 6, True, "float16", ShortConfig(3, 43, 2, 4)),
        # Angles are below 2**20 turns.
        (SHORT_ROWS, 2, True, "float32", ShortConfig(1, 128, 2, 4, along=True)),
        (SHORT_ROWS + 1, 2, True, "float32", SinusoidalConfig(32, 2, 4)),
        (SHORT_ROWS, 2, False, "float16", ShortConfig(1, 128, 1, 8)),
        # The second axis of a grid has fewer blocks.
        (1, 2**22 - 2, True, "float32", SinusoidalConfig(256, 2, 4)),
    ],
)
def test_which_tables_are_short(
    length: int,
    width: int,
    interleaved: bool,
    dtype: str,
    layout: ShortConfig | SinusoidalConfig,
) -> None:
    assert choose_config(length, width, interleaved, dtype, 1e4) == layout


def test_frequencies_of_more_than_a_radian_take_the_other_program() -> None:
    """A short table's angles stay below 2**20 turns, and its factors at most 1."""
    assert isinstance(choose_config(512, 512, True, "float32", 1.0), ShortConfig)
    assert isinstance(choose_config(512, 512, True, "float32", 0.99), SinusoidalConfig)
    assert SHORT_ROWS / (2 * math.pi) < 2**20


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_every_short_table_has_a_layout(dtype: str, itemsize: int, interleaved: bool) -> None:
    for width in (2, 6, 10, 64, 130, 1280, 2048, 2056, 20000, 2**20 + 2, 2**23 - 2, 2**23):
        longest = SHORT_BYTES[dtype] // (width * itemsize)
        for length in {0, 1, 9, longest // 3, longest}:
            if length > longest:
                continue
            found = choose_config(length, width, interleaved, dtype, 1e4)
            where = (length, width, found)
            columns = width if interleaved else width // 2
            assert columns % found.vector == 0, where
            assert not interleaved or found.vector % 2 == 0, where
            if isinstance(found, SinusoidalConfig):
                # Too many rows, or blocks for the grid's second axis.
                assert dtype == "float32", where
                assert length > SHORT_ROWS or width > 2**20, where
                continue
            accesses = columns // found.vector
            assert 128 <= found.columns * found.lines <= 256, where
            assert 1 <= found.rows <= 16, where
            # Indices have 32 bits, and the second axis of a grid at most 65535 blocks.
            assert length * width // found.vector < 2**31, where
            groups = -(-length // (found.rows * found.lines))
            across = -(-accesses // found.columns)
            assert (groups if found.along else across) < 2**16, where
            if found.bits:
                pairs = found.vector // 2 if interleaved else found.vector
                assert accesses <= 2**found.bits, where
                assert pairs << found.bits <= 1024, where


@needs_nvcc
@pytest.mark.parametrize(
    ("length", "dtype", "interleaved"),
    [
        (512, "float16", True),
        (512, "float16", False),
        (512, "float32", True),
        (8192, "float16", True),
        (8192, "float32", True),
        (16384, "float32", True),
    ],
)
def test_each_kind_of_short_program_builds(length: int, dtype: str, interleaved: bool) -> None:
    config = choose_config(length, 512, interleaved, dtype, 1e4)
    assert isinstance(config, ShortConfig)
    make = factored_sinusoidal if length == 512 else short_sinusoidal
    assert (config.bits > 0) == (length == 512)
    assert config.along == (length == 16384)
    program = tilelang_backend.build(
        lambda: make(dtype, interleaved, config),
        arch="sm_90a",
        pass_configs=SHORT_PASS_CONFIGS,
    )
    assert program.symbol == make.__name__
    body = program.source[program.source.rindex("__launch_bounds__") :]
    # The store, and what is loaded, are whole accesses.
    store = {
        ("float16", True): "*(uint4*)(((half_t*)Y)",
        ("float16", False): "*(uint2*)(((half_t*)Y)",
        ("float32", True): "*(float4*)(((float*)Y)",
    }[dtype, interleaved]
    assert body.count(store) == body.count("*)Y)") == (1 if interleaved else 2)
    if config.bits:
        assert "F)" not in body
        assert body.count("product[") > config.bits
    else:
        assert "*(double2*)(((double*)F)" in body
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
        # Frequencies of factors, of accesses of 1, 2 and 4 pairs; and read, of one pair.
        (130, 510, F32, True),
        (131, 1020, F32, False),
        (257, 2048, F16, True),
        (2, 2048, F32, True),
        (FACTORED_ROWS, 6, F16, True),
        (FACTORED_ROWS + 1, 6, F16, True),
        # Blocks down the rows, of 32 threads to a row or fewer, and along the rows.
        (1999, 1032, F32, True),
        (1999, 1030, F32, False),
        (32771, 72, F32, True),
        (4099, 1032, F32, True),
        (2053, 2060, F32, False),
        (65537, 68, F32, True),
        (262139, 20, F32, False),
        # The most rows there are.
        (SHORT_ROWS, 2, F32, True),
        (SHORT_ROWS, 2, F16, False),
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
@pytest.mark.parametrize("base", [1.0, 1.5, 5e5, 1e269])
@pytest.mark.parametrize(("length", "width", "dtype"), [(127, 1280, F16), (1031, 768, F32)])
def test_short_tables_of_other_bases(
    length: int, width: int, dtype: torch.dtype, base: float
) -> None:
    op = SinusoidalFwdOp(length, width, base, dtype=dtype, device="cuda")
    op()
    (kernel,) = op.iter_kernels()
    table = torch.full((length, width), math.nan, dtype=dtype, device="cuda")
    kernel.kernel.prepare(table)(table)
    assert_close_to_oracle(op, "table", table, oracle(length, width, True, base))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("width", "interleaved", "dtype", "thresholds"),
    [
        (1024, True, F32, FACTORED_BYTES),
        (1280, False, F16, FACTORED_BYTES),
        (1024, True, F32, SHORT_BYTES),
        (2056, False, F32, SHORT_BYTES),
        (1280, False, F16, SHORT_BYTES),
        (130, True, BF16, SHORT_BYTES),
    ],
)
def test_tables_to_either_side_of_a_threshold(
    width: int, interleaved: bool, dtype: torch.dtype, thresholds: dict[str, int]
) -> None:
    """The longest table of a program, and one that is a row longer."""
    name = str(dtype).removeprefix("torch.")
    length = thresholds[name] // (width * dtype.itemsize)
    found = [choose_config(rows, width, interleaved, name, 1e4) for rows in (length, length + 1)]
    if thresholds is SHORT_BYTES:
        assert [type(one) for one in found] == [ShortConfig, SinusoidalConfig]
    else:
        assert [one.bits > 0 for one in found if isinstance(one, ShortConfig)] == [True, False]
    for rows in (length, length + 1):
        torch.full((rows, width), math.nan, dtype=dtype, device="cuda")
        op = SinusoidalFwdOp(rows, width, interleaved=interleaved, dtype=dtype, device="cuda")
        assert_close_to_oracle(op, "table", op(), oracle(rows, width, interleaved))
