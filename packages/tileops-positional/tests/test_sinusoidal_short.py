"""The program of short sinusoidal tables: its frequencies, its layouts, its builds, its results."""

from __future__ import annotations

import dataclasses
import math
import shutil
from decimal import Decimal, localcontext

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.core.testing import assert_close_to_oracle
from tileops.positional import SinusoidalFwdOp
from tileops.positional.sinusoidal import configs
from tileops.positional.sinusoidal.configs import (
    NUMBER_BITS,
    ShortConfig,
    SinusoidalConfig,
    choose_config,
    choose_short_config,
    may_overlap,
)
from tileops.positional.sinusoidal.programs import sinusoidal
from tileops.positional.sinusoidal.short.frequencies import frequency_words, made_numbers
from tileops.positional.sinusoidal.short.programs import PASS_CONFIGS, short_sinusoidal

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")

# d_model, base, a thread's own pairs: up to 256 threads to a row.
TABLES = [(1280, 1e4, 4), (1024, 1e4, 2), (512, 1e4, 4), (4096, 5e5, 8), (130, 1e4, 1), (2, 1e4, 1)]
TABLES += [(64, 0.3, 2), (48, 1.0, 4), (256, 1e250, 8)]


def loaded(d_model: int, base: float) -> list[float]:
    words = torch.tensor(frequency_words(d_model, base), dtype=torch.int64)
    return [float(turn) for turn in words.view(torch.float64)]


def made(d_model: int, base: float, own: int) -> list[float]:
    """As the program makes them, each product rounded to float64."""
    numbers = made_numbers(d_model, base, own)
    low = own.bit_length() - 1
    found = []
    for number in range(-(-d_model // 2 // own)):
        factors = [numbers["after"] if number & 1 else numbers["unit"]]
        for b in range(1, NUMBER_BITS):
            factors.append(numbers[f"r{low + b}"] if number >> b & 1 else 1.0)
        while len(factors) > 1:
            factors = [a * b for a, b in zip(factors[::2], factors[1::2], strict=True)]
        mine = factors
        for b in range(low):
            mine += [turn * numbers[f"r{b}"] for turn in mine]
        found += mine
    return found[: d_model // 2]


@pytest.mark.parametrize(("d_model", "base", "own"), TABLES)
def test_angles_are_exact_to_their_last_bit(d_model: int, base: float, own: int) -> None:
    """2**-32 of a turn at the furthest position that the program is chosen for."""
    with localcontext() as context:
        context.prec = 60
        # Pi to 60 digits, which float64 lacks.
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
        log = Decimal(base).ln()
        exact = [(-2 * k * log / d_model).exp() / (2 * pi) for k in range(d_model // 2)]
        fastest = max(exact)
        # Random positions up to the furthest, which is among them.
        furthest = int(Decimal(2**14) / fastest)
        assert furthest > 2**10
        positions = [*torch.randint(furthest, (20,)).tolist(), furthest]
        for frequencies in (loaded(d_model, base), made(d_model, base, own)):
            assert len(frequencies) == d_model // 2
            for turn, right in zip(frequencies, exact, strict=True):
                for position in positions:
                    # The program's sum, of which the lower 32 bits are taken; with a product that
                    # is rounded on its own, where an FMA rounds once.
                    near = torch.tensor(position * turn + 1.5 * 2.0**20, dtype=torch.float64)
                    angle = int(near.view(torch.int64)) % 2**32
                    off = (position * right * 2**32 - angle) % 2**32
                    assert min(off, 2**32 - off) <= 1, (position, turn)


def test_the_short_program_is_not_chosen_where_it_is_not_exact() -> None:
    assert choose_short_config(102_943, 64, 1e4, True, "float32") is not None
    assert choose_short_config(102_944, 64, 1e4, True, "float32") is None  # 2**14 turns
    assert choose_short_config(1000, 64, 1e-2, True, "float32") is not None
    assert choose_short_config(1000, 64, 1e-3, True, "float32") is None
    assert choose_short_config(1, 64, 1e-300, True, "float32") is None
    assert choose_short_config(102_943, 2**18, 1e4, True, "float32") is None  # 2**31 accesses


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_short_table_has_a_layout(dtype: str, interleaved: bool) -> None:
    for width in (2, 6, 10, 64, 130, 1280, 2048, 2056, 20000):
        for length in (1, 9, 1024, 65536):
            found = choose_short_config(length, width, 1e4, interleaved, dtype)
            where = (length, width, found)
            assert found is not None, where
            columns = width if interleaved else width // 2
            assert columns % found.vector == 0, where
            assert not interleaved or found.vector % 2 == 0, where
            assert found.threads % 32 == 0, where
            assert 32 <= found.threads <= 256, where
            # A thread's number in its row has as many bits as frequencies are made of.
            assert not found.made or columns // found.vector <= 2**NUMBER_BITS, where


def test_a_table_is_short_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "SHORT_BYTES", 2**20)
    assert isinstance(choose_config(512, 512, 1e4, False, "float32"), ShortConfig)
    assert isinstance(choose_config(513, 512, 1e4, False, "float32"), SinusoidalConfig)
    # Short, but not exact.
    assert isinstance(choose_config(512, 512, 1e-9, False, "float32"), SinusoidalConfig)


@pytest.mark.parametrize(
    ("arch", "may"), [("sm_80", False), ("sm_89", False), ("sm_90a", True), ("sm_120a", True)]
)
def test_launches_overlap_from_hopper_on(arch: str, may: bool) -> None:
    assert may_overlap(arch) == may


@needs_nvcc
@pytest.mark.parametrize("overlap", ["none", "start", "values"])
@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("interleaved", [True, False])
def test_each_kind_of_short_program_builds(interleaved: bool, made: bool, overlap: str) -> None:
    config = choose_short_config(512, 512, 1e4, interleaved, "float16")
    assert config is not None
    config = dataclasses.replace(config, made=made, overlap=overlap)
    program = tilelang_backend.build(
        lambda: short_sinusoidal("float16", interleaved, config),
        arch="sm_90a",
        pass_configs=PASS_CONFIGS,
    )
    assert program.symbol == "short_sinusoidal"
    body = program.source[program.source.rindex("__launch_bounds__") :]
    # The store, and what is loaded, are whole accesses.
    assert "*(uint4*)(((half_t*)Y)" in body
    assert ("frequencies" in body) != made
    wait = body.find("cudaGridDependencySynchronize")
    assert (wait >= 0) == (overlap != "none")
    assert wait < body.index("(half_t*)Y)")
    assert (wait > body.index("__sinf")) == (overlap == "values")


@needs_nvcc
def test_the_program_of_any_length_waits_before_it_writes() -> None:
    config = SinusoidalConfig(64, 4, 2, overlap=True)
    program = tilelang_backend.build(lambda: sinusoidal("float32", True, config), arch="sm_90a")
    body = program.source[program.source.rindex("__launch_bounds__") :]
    assert 0 < body.index("cudaGridDependencySynchronize") < body.index("(float*)Y)")


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", ["none", "start", "values"])
@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("length", "width"), [(1, 2), (9, 10), (70, 64), (17, 130), (1500, 1280), (7, 2056)]
)
def test_the_short_kernel(
    length: int,
    width: int,
    dtype: torch.dtype,
    interleaved: bool,
    made: bool,
    overlap: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one graph with a fill before and a copy after, without a gap: what does not wait for the
    kernel before, or is not waited for, shows."""
    shipped = choose_short_config

    def choose(*arguments: object) -> ShortConfig:
        config = shipped(*arguments)  # type: ignore[arg-type]
        assert config is not None
        return dataclasses.replace(config, made=made and config.made, overlap=overlap)  # type: ignore[arg-type]

    monkeypatch.setattr(configs, "SHORT_BYTES", 2**40)
    monkeypatch.setattr(configs, "choose_short_config", choose)
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
    pair = torch.arange(width // 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 1e4 ** (-2 * pair / width)
    parts = [angle.sin(), angle.cos()]
    exact = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    for copy in copies:
        assert_close_to_oracle(op, "table", copy, exact)
    assert table.isnan().all()
