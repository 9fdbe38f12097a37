"""LayerNormFwdOp: what its users see, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.errors import ArgumentError, ParamError
from tileops.core.testing import GraphRecorder
from tileops.norm import LayerNormFwdOp

from .formulas import DTYPES, HALVES, check, layer_norm, rand

OPERATOR = "tileops::norm_layer_norm_fwd"
SHAPES = [
    ((), (7,), 1e-5),
    ((1,), (1,), 1e-6),
    ((3, 5), (129,), 1e-12),
    ((2, 1, 3), (4, 33), 0.0),
    ((2,), (4097,), 1e-5),
]
AFFINE = [(False, False), (True, False), (False, True), (True, True)]


def affine(shape: Any, there: tuple[bool, bool], dtype: torch.dtype) -> list[torch.Tensor | None]:
    return [rand(*shape, dtype=dtype) if one else None for one in there]


def test_names_its_operator() -> None:
    assert LayerNormFwdOp.compile_op_names == (OPERATOR,)


@pytest.mark.parametrize("there", AFFINE)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "shape", "eps"), SHAPES)
def test_equals_the_float64_formula(
    dtype: torch.dtype, there: Any, rows: Any, shape: Any, eps: float
) -> None:
    op, x = LayerNormFwdOp(shape, eps), rand(*rows, *shape, dtype=dtype)
    for held in {dtype, torch.float32}:
        weight, bias = affine(shape, there, held)
        y = op(x, weight, bias)
        check(y, layer_norm(x, len(shape), eps, weight, bias), dtype)


@pytest.mark.parametrize("there", AFFINE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_pytorch(dtype: torch.dtype, there: Any) -> None:
    """Both are within one bound of the formula, defaults included."""
    x = rand(4, 65, dtype=dtype)
    weight, bias = affine((65,), there, dtype)
    expected = layer_norm(x, 1, 1e-5, weight, bias)
    check(functional.layer_norm(x, (65,), weight, bias), expected, dtype)
    check(LayerNormFwdOp(65)(x, weight, bias), expected, dtype)


@pytest.mark.parametrize("ratio", [1e2, 1e4, -3e4])
def test_a_large_mean_leaves_the_variance_right(ratio: float) -> None:
    """The variance is that of differences: as a difference of squares it would be lost here."""
    x = rand(5, 1000, dtype=torch.float32, mean=ratio)
    y = LayerNormFwdOp(1000, 0.0)(x)
    check(y, layer_norm(x, 1, 0.0), torch.float32)
    # A wrong mean moves all values alike and leaves their spread.
    spread = y.double().std(-1, correction=0)
    torch.testing.assert_close(spread, torch.ones_like(spread), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_large_mean_in_half_precision(dtype: torch.dtype) -> None:
    x = rand(5, 300, dtype=dtype, mean=100)
    check(LayerNormFwdOp(300)(x), layer_norm(x, 1, 1e-5), dtype)


def test_a_row_of_one_value_is_zero_and_without_eps_nan() -> None:
    x = torch.full((2, 48), 3.0)
    assert torch.equal(LayerNormFwdOp(48)(x), torch.zeros_like(x))
    assert bool(LayerNormFwdOp(48, 0.0)(x).isnan().all())


def test_agrees_with_pytorch_where_it_is_not_finite() -> None:
    x = torch.randn(5, 16)
    x[0, 3], x[1, 5], x[2, 7] = float("nan"), float("inf"), -float("inf")
    x[3] = 3e38  # the sum overflows
    weight, bias = torch.randn(16), torch.randn(16)
    weight[2], bias[4] = float("inf"), float("nan")
    y = LayerNormFwdOp(16)(x, weight, bias)
    expected = functional.layer_norm(x, (16,), weight, bias)
    assert bool(y[:3].isnan().all())
    torch.testing.assert_close(y[[0, 1, 2, 4]], expected[[0, 1, 2, 4]], equal_nan=True)


def test_the_sum_of_a_row_may_overflow_in_half_precision() -> None:
    """Statistics are float32: 65504 * 64 is no float16."""
    x = torch.full((1, 64), 60000.0).half()
    x[0, ::2] = -60000.0
    check(LayerNormFwdOp(64)(x), layer_norm(x, 1, 1e-5), torch.float16)


def test_no_rows() -> None:
    y = LayerNormFwdOp(16)(torch.empty(0, 16), torch.ones(16))
    assert (y.shape, y.dtype) == ((0, 16), torch.float32)


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_columns(shape: tuple[int, ...]) -> None:
    op, x = LayerNormFwdOp(shape), torch.empty(4, *shape)
    assert op(x).shape == functional.layer_norm(x, shape).shape == (4, *shape)
    assert op(x.to("meta")).shape == (4, *shape)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_strided_arguments(backend: str | None) -> None:
    op = LayerNormFwdOp(64)
    x, both = torch.randn(64, 5).t(), torch.randn(64, 2)
    arguments = (x, both[:, 0], both[:, 1])
    plain = op(*(one.contiguous() for one in arguments))
    torch._dynamo.reset()
    y = (op if backend is None else torch.compile(op, backend=backend, fullgraph=True))(*arguments)
    assert y.is_contiguous()
    assert torch.equal(y, plain)
    assert torch.equal(op(torch._neg_view(x)), -op(x))


def test_compiles_into_one_node() -> None:
    op = LayerNormFwdOp(64)
    x, weight, bias = torch.randn(3, 64), torch.randn(64), torch.randn(64)
    recorder = GraphRecorder("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(op, backend=recorder, fullgraph=True)(x, weight, bias)
    assert recorder.calls == [[OPERATOR]]
    assert torch.equal(compiled, LayerNormFwdOp(64)(x, weight, bias))


def test_shared_is_one_instance() -> None:
    op = LayerNormFwdOp.shared(64)
    assert LayerNormFwdOp.shared((64,), 1e-5) is op
    assert LayerNormFwdOp.shared((64,), 1e-6) is not op


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (((),), "normalized_shape has no axes; at least one is normalized"),
        ((8, -1e-5), "eps is -1e-05; it is at least 0"),
        ((8, float("nan")), "eps is nan; it is at least 0"),
        ((8, None), "eps is None, but the signature needs a float"),
    ],
)
def test_wrong_params(arguments: Any, text: str) -> None:
    with pytest.raises(ParamError) as error:
        LayerNormFwdOp(*arguments)
    assert str(error.value) == f"LayerNormFwdOp: {text}"


X = torch.randn(3, 64)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (X, torch.randn(63)),
            "weight has shape [63], but the signature needs [*normalized_shape] = [64]",
        ),
        (
            (X, None, torch.randn(1, 64)),
            "bias has shape [1, 64], but the signature needs [*normalized_shape] = [64]",
        ),
        (
            (torch.tensor(1.0),),
            "x has shape [], but the signature needs [*B, *normalized_shape] = [*B, 64]",
        ),
        (
            (X.double(),),
            "x has dtype float64, but the signature needs T = float16, bfloat16 or float32",
        ),
        (
            (X, torch.randn(64), torch.randn(64).half()),
            "bias has dtype float16, but the signature needs W = float32",
        ),
        (
            (X, None, torch.randn(64).half()),
            "the call has T = float32 (x), W = float16 (bias), but the signature needs one of: "
            "T = float16, W = float16; T = float16, W = float32; T = bfloat16, W = bfloat16; "
            "T = bfloat16, W = float32; T = float32, W = float32; convert one of them",
        ),
    ],
)
def test_wrong_calls(arguments: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        LayerNormFwdOp(64)(*arguments)
    assert str(error.value) == f"LayerNormFwdOp: {text}"
