"""SinusoidalFwdOp against the paper's formula, eager and fused into a model."""

from __future__ import annotations

import math
import re
import shutil

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.core import tilelang_backend
from tileops.core.errors import ParamError
from tileops.core.testing import assert_close_to_oracle
from tileops.positional import SinusoidalFwdOp
from tileops.positional.sinusoidal import configs
from tileops.positional.sinusoidal.configs import SinusoidalConfig, choose_config
from tileops.positional.sinusoidal.pieces import COSINE, SINE
from tileops.positional.sinusoidal.programs.any_size import sinusoidal

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def oracle(length: int, width: int, base: float, interleaved: bool) -> torch.Tensor:
    table = torch.empty(length, width, dtype=torch.float64)
    for i in range(length):
        for k in range(width // 2):
            angle = i / base ** (2 * k / width)
            first, second = (2 * k, 2 * k + 1) if interleaved else (k, width // 2 + k)
            table[i, first], table[i, second] = math.sin(angle), math.cos(angle)
    return table


def test_it_has_no_boundary() -> None:
    assert SinusoidalFwdOp.compile_op_names == ()


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("length", "width", "base"), [(1, 2, 1e4), (3, 6, 1e4), (70, 64, 1e4), (33, 130, 5e5)]
)
def test_equals_the_formula(
    length: int, width: int, base: float, dtype: torch.dtype, interleaved: bool
) -> None:
    op = SinusoidalFwdOp(length, width, base, interleaved=interleaved, dtype=dtype)
    table = op()
    assert (table.shape, table.dtype) == ((length, width), dtype)
    assert table.is_contiguous()
    assert_close_to_oracle(op, "table", table, oracle(length, width, base, interleaved))
    assert op.serving_target == "reference"


def test_far_positions_are_as_exact_as_near_ones() -> None:
    """In float32 the angle at the last position would be off by 6e-3."""
    op = SinusoidalFwdOp(100_003, 4)
    last = op()[-1:]
    exact = torch.tensor([[f(100_002 * w) for w in (1.0, 0.01) for f in (math.sin, math.cos)]])
    torch.testing.assert_close(last, exact, rtol=0, atol=2.5e-7)


@pytest.mark.parametrize("interleaved", [True, False])
def test_inductor_fuses_the_table_into_what_reads_it(interleaved: bool) -> None:
    """One kernel, which reads the embeddings and writes the sum: the table is never in memory."""
    op = SinusoidalFwdOp(33, 48, interleaved=interleaved)
    x = torch.randn(2, 33, 48)
    torch._dynamo.reset()
    found, (code,) = run_and_get_code(torch.compile(lambda x: x + op(), fullgraph=True), x)
    torch.testing.assert_close(found, x + op(), rtol=1e-6, atol=1e-6)
    assert len(set(re.findall(r"^cpp_fused_\w+ = ", code, re.M))) == 1
    assert "extern_kernels" not in code.partition("def call(")[2]
    assert len(re.findall(r"= empty_strided_cpu\(", code)) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1, 4), "SinusoidalFwdOp: seq_len is -1; it is at least 0"),
        ((4, 5), "SinusoidalFwdOp: d_model is 5; it is even and above 0"),
        (
            (4, 4, 0.0),
            "SinusoidalFwdOp: base is 0.0; it is above 1e-270 and below 1e270, so that each "
            "frequency is a finite number",
        ),
        (
            (4, 4, math.inf),
            "SinusoidalFwdOp: base is inf; it is above 1e-270 and below 1e270, so that each "
            "frequency is a finite number",
        ),
        (
            (2**59, 2),
            "SinusoidalFwdOp: seq_len is 576460752303423488 and d_model is 2; a table of so many "
            "float64 numbers, which plain PyTorch makes, has 2**63 bytes or more",
        ),
        (
            (4, 2**64),
            "SinusoidalFwdOp: d_model is 18446744073709551616, but the signature needs an int of "
            "64 bits",
        ),
    ],
)
def test_params_are_checked(arguments: tuple[int, ...], text: str) -> None:
    with pytest.raises(ParamError) as error:
        SinusoidalFwdOp(*arguments)
    assert str(error.value) == text


def test_the_polynomials_are_as_exact_as_they_say() -> None:
    """In float32, over an eighth of a turn to either side, each step rounded as an FMA is."""

    def fma(a: torch.Tensor, b: torch.Tensor, c: float) -> torch.Tensor:
        return (a.double() * b.double() + torch.tensor(c).double()).float()

    near = torch.cat([torch.arange(-(2**31), 2**31 - 1, 4099), torch.arange(-5000, 5000)])
    x = near.float() * 2.0**-31
    y = x * x
    sine, cosine = torch.full_like(x, SINE[-1]), torch.full_like(x, COSINE[-1])
    for k in (2, 1, 0):
        sine, cosine = fma(sine, y, SINE[k]), fma(cosine, y, COSINE[k])
    sine, cosine = sine * x, fma(cosine, y, 1.0)
    exact = near.double() * (2.0**-31 * math.pi / 4)
    assert (sine.double() - exact.sin()).abs().max() <= 1.1e-7
    assert (cosine.double() - exact.cos()).abs().max() <= 1.1e-7


def test_the_hardware_is_as_exact_as_a_half_precision_table_asks() -> None:
    """The angle's own errors in float32, and the CUDA programming guide's of __sinf and __cosf."""
    angle = torch.cat(
        [torch.arange(-(2**31), 2**31 - 1, 4099)]
        + [torch.arange(-5000, 5000) + quarter for quarter in (-(2**30), 0, 2**30)]
    )
    argument = angle.float() * math.pi * 2.0**-31
    exact = angle.double() * (math.pi * 2.0**-31)
    off = (argument.double() - exact).abs()
    assert off.max() <= 3e-7
    near = (exact.abs() - math.pi / 2).abs() < 1e-3
    assert off[near].max() <= 2e-7
    assert argument.abs().max() <= torch.tensor(math.pi)
    for function, error in ((torch.sin, 2**-21.41), (torch.cos, 2**-21.19)):
        wanted = function(exact)
        most = (function(argument.double()) - wanted).abs() + error
        for tolerance in SinusoidalFwdOp.entry.tolerances:
            digits = {"float16": 11, "bfloat16": 8}.get(tolerance.dtype)
            if digits is None:
                continue
            # Rounded once, or to half of float16's smallest step.
            rounded = most + torch.clamp((wanted.abs() + most) * 2.0**-digits, min=2.0**-25)
            assert (rounded <= tolerance.atol + tolerance.rtol * wanted.abs()).all(), function


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_table_has_a_layout(
    dtype: str, interleaved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "SHORT_BYTES", dict.fromkeys(configs.SHORT_BYTES, -1))
    for width in (2, 6, 10, 64, 130, 1280, 2048, 2056, 20000):
        for length in (1, 9, 1024, 65536, 10**6):
            found = choose_config(length, width, interleaved, dtype, 1e4)
            where = (length, width, found)
            assert isinstance(found, SinusoidalConfig)
            # An access is of one half, or of whole pairs.
            assert (width if interleaved else width // 2) % found.vector == 0, where
            assert not interleaved or found.vector % 2 == 0, where
            assert found.threads % 32 == 0, where
            assert 32 <= found.threads <= 256, where
            assert found.rows in (1, 2, 4), where


@pytest.mark.parametrize(("length", "rows"), [(2**33 - 4, 4), (2**33, 8), (2**35, 32)])
def test_the_longest_tables_have_blocks_that_a_grid_can_have(length: int, rows: int) -> None:
    found = choose_config(length, 2, True, "float16", 1e4)
    assert found == SinusoidalConfig(32, 2, rows)
    assert -(-length // rows) < 2**31


@needs_nvcc
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_each_kind_of_program_builds(dtype: str, interleaved: bool) -> None:
    config = choose_config(65536, 2048, interleaved, dtype, 1e4)
    assert isinstance(config, SinusoidalConfig)
    program = tilelang_backend.build(lambda: sinusoidal(dtype, interleaved, config), arch="sm_90a")
    assert program.symbol == "sinusoidal"
    assert "int64_t at[1]" in program.source
    assert ("__sinf" in program.source) == (dtype != "float32")


@pytest.mark.gpu
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("length", "width"),
    # One row a block and up to four, of which the last block has fewer; blocks across a row.
    [
        *[(1, 2), (3, 6), (9, 10), (70, 64), (17, 130), (1500, 1280), (7, 2056), (8451, 24)],
        *[(70001, 6), (1031, 8200)],
    ],
)
def test_the_kernel(
    length: int,
    width: int,
    dtype: torch.dtype,
    interleaved: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program for tables of any size, of small ones too."""
    monkeypatch.setattr(configs, "SHORT_BYTES", dict.fromkeys(configs.SHORT_BYTES, -1))
    op = SinusoidalFwdOp(length, width, interleaved=interleaved, dtype=dtype, device="cuda")
    for _ in range(2):
        # What is freed here is what the next table is made in.
        torch.full((length, width), math.nan, dtype=dtype, device="cuda")
        table = op()
    pair = torch.arange(width // 2, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 1e4 ** (-2 * pair / width)
    parts = [angle.sin(), angle.cos()]
    exact = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    assert op.serving_target == "tilelang"
    assert_close_to_oracle(op, "table", table, exact)


def test_a_fake_card_that_pytorch_was_built_without() -> None:
    """PyTorch cannot index its tensors."""
    with FakeTensorMode():
        table = SinusoidalFwdOp(4, 6, device="cuda:0")()
    assert (table.shape, table.device) == ((4, 6), torch.device("cuda:0"))
