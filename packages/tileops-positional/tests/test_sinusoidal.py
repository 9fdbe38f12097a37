"""SinusoidalFwdOp against the paper's formula, eager and fused into a model."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from tileops.core.errors import ParamError
from tileops.core.testing import assert_close_to_oracle
from tileops.positional import SinusoidalFwdOp

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
        ((4, 4, 0.0), "SinusoidalFwdOp: base is 0.0; it is above 0"),
    ],
)
def test_params_are_checked(arguments: tuple[int, ...], text: str) -> None:
    with pytest.raises(ParamError) as error:
        SinusoidalFwdOp(*arguments)
    assert str(error.value) == text


@pytest.mark.gpu
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("length", "width"), [(1, 2), (3, 6), (9, 10), (70, 64), (17, 130), (1500, 1280), (7, 2056)]
)
def test_the_kernel(length: int, width: int, dtype: torch.dtype, interleaved: bool) -> None:
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
