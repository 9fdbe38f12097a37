"""FusedAddLayerNormFwdOp: what its users see, on the CPU.

What it shares with FusedAddRMSNormFwdOp, the branch that writes above all, is tested more closely
there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.errors import ArgumentError, GradientError, ParamError
from tileops.core.testing import GraphRecorder
from tileops.norm import FusedAddLayerNormFwdOp, LayerNormFwdOp

from .formulas import DTYPES, HALVES, check, layer_norm, rand

OPERATOR = "tileops::norm_fused_add_layer_norm_fwd"
WRITING = f"{OPERATOR}_writes_x_writes_residual"


def call(
    op: FusedAddLayerNormFwdOp, x: torch.Tensor, residual: torch.Tensor, *affine: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The op's call on copies; in place it must return what it was given."""
    given = x.clone(), residual.clone()
    y, added = op(*given, *affine)
    assert (y is given[0], added is given[1]) == (op.inplace, op.inplace)
    if not op.inplace:
        assert torch.equal(given[0], x)
        assert torch.equal(given[1], residual)
    return y, added


def test_names_its_operators() -> None:
    assert FusedAddLayerNormFwdOp.compile_op_names == (OPERATOR, WRITING)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "shape", "eps"),
    [((), (7,), 1e-5), ((1,), (1,), 1e-6), ((3, 5), (129,), 1e-12), ((2, 1, 3), (4, 33), 0.0)],
)
def test_equals_the_float64_formula(
    dtype: torch.dtype, rows: Any, shape: Any, eps: float, inplace: bool
) -> None:
    """The norm is of the sum as it is rounded and returned."""
    op = FusedAddLayerNormFwdOp(shape, eps, inplace=inplace)
    x, residual = (rand(*rows, *shape, dtype=dtype) for _ in range(2))
    total = (x.float() + residual.float()).to(dtype)
    for weight, bias in (
        (None, None),
        (rand(*shape, dtype=dtype), None),
        (None, rand(*shape, dtype=torch.float32)),
        (rand(*shape, dtype=torch.float32), rand(*shape, dtype=torch.float32)),
    ):
        y, added = call(op, x, residual, weight, bias)
        assert torch.equal(added, total)
        check(y, layer_norm(total, len(shape), eps, weight, bias), dtype)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_is_the_norm_of_the_sum_that_it_returns(dtype: torch.dtype, inplace: bool) -> None:
    """Bit by bit what the addition and LayerNorm give one after the other; and PyTorch's own."""
    x, residual = rand(6, 80, dtype=dtype), rand(6, 80, dtype=dtype)
    weight, bias = rand(80, dtype=dtype), rand(80, dtype=dtype)
    y, added = call(FusedAddLayerNormFwdOp(80, inplace=inplace), x, residual, weight, bias)
    assert torch.equal(added, x + residual)
    assert torch.equal(y, LayerNormFwdOp(80)(added, weight, bias))
    theirs = functional.layer_norm(x + residual, (80,), weight, bias)
    check(theirs, layer_norm(added, 1, 1e-5, weight, bias), dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_sum_is_rounded_before_it_is_normalized(dtype: torch.dtype) -> None:
    """The norm of the sum as it was is another one, by more than the last rounding."""
    x, residual = rand(8, 128, dtype=dtype), rand(8, 128, dtype=dtype)
    y, added = FusedAddLayerNormFwdOp(128)(x, residual)
    check(y, layer_norm(added, 1, 1e-5), dtype)
    with pytest.raises(AssertionError):
        check(y, layer_norm(x.double() + residual.double(), 1, 1e-5), dtype)


@pytest.mark.parametrize("mean", [1e2, 1e4])
def test_a_large_mean_leaves_the_variance_right(mean: float) -> None:
    x, residual = torch.randn(5, 1000), rand(5, 1000, dtype=torch.float32, mean=mean)
    y, added = FusedAddLayerNormFwdOp(1000, 0.0)(x, residual)
    check(y, layer_norm(added, 1, 0.0), torch.float32)
    spread = y.double().std(-1, correction=0)
    torch.testing.assert_close(spread, torch.ones_like(spread), rtol=1e-5, atol=0)


@pytest.mark.parametrize("inplace", [False, True])
def test_compiles_into_the_node_of_its_branch(inplace: bool) -> None:
    op = FusedAddLayerNormFwdOp(64, inplace=inplace)
    x, residual = torch.randn(3, 64).half(), torch.randn(3, 64).half()
    expected = call(op, x, residual)
    recorder = GraphRecorder("aot_eager")
    torch._dynamo.reset()
    given = x.clone(), residual.clone()
    found = torch.compile(op, backend=recorder, fullgraph=True)(*given)
    nodes = [name for name in recorder.calls[0] if name.startswith("tileops::")]
    assert nodes == [WRITING if inplace else OPERATOR]
    assert all(map(torch.equal, found, expected))
    assert all(map(torch.equal, given, expected if inplace else (x, residual)))


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_in_place_through_strides(backend: str | None) -> None:
    op, x, residual = FusedAddLayerNormFwdOp(48, inplace=True), *torch.randn(2, 48, 5)
    expected = FusedAddLayerNormFwdOp(48)(x.t(), residual.t())
    assert all(one.is_contiguous() for one in expected)
    torch._dynamo.reset()
    run = op if backend is None else torch.compile(op, backend=backend, fullgraph=True)
    run(x.t(), residual.t())
    assert torch.equal(x.t(), expected[0])
    assert torch.equal(residual.t(), expected[1])


def test_what_may_not_be_written_is_refused() -> None:
    op, x = FusedAddLayerNormFwdOp(16, inplace=True), torch.randn(2, 16)
    with pytest.raises(ArgumentError) as error:
        op(x, x)
    assert str(error.value) == (
        "FusedAddLayerNormFwdOp: x is written and shares memory with residual; pass tensors that "
        "do not overlap, such as residual.clone()"
    )
    with pytest.raises(GradientError) as raised:
        op(torch.nn.Parameter(x), torch.randn(2, 16))
    assert str(raised.value) == (
        "FusedAddLayerNormFwdOp: x is written and is a leaf that requires grad; call the op under "
        "torch.no_grad(), or pass x.detach()"
    )


def test_agrees_with_pytorch_where_it_is_not_finite() -> None:
    x, residual = torch.randn(4, 16), torch.randn(4, 16)
    x[0, 3], x[1, 5], residual[2, 7] = float("nan"), float("inf"), -float("inf")
    y, added = FusedAddLayerNormFwdOp(16)(x, residual)
    torch.testing.assert_close(added, x + residual, equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(y, functional.layer_norm(x + residual, (16,)), equal_nan=True)


@pytest.mark.parametrize("size", [(0, 16), (4, 0)])
@pytest.mark.parametrize("inplace", [False, True])
def test_no_elements(inplace: bool, size: tuple[int, int]) -> None:
    op, x, residual = FusedAddLayerNormFwdOp(size[1], inplace=inplace), *torch.empty(2, *size)
    found = op(x, residual, torch.ones(size[1]))
    assert [one.shape for one in found] == [size] * 2
    assert all(one is given for one, given in zip(found, (x, residual), strict=True)) == inplace


def test_shared_is_one_instance_a_branch() -> None:
    op = FusedAddLayerNormFwdOp.shared(64)
    assert FusedAddLayerNormFwdOp.shared((64,), 1e-5) is op
    assert FusedAddLayerNormFwdOp.shared(64, inplace=True) is not op


@pytest.mark.parametrize(
    ("arguments", "named", "text"),
    [
        (((),), {}, "normalized_shape has no axes; at least one is normalized"),
        ((8, None), {}, "eps is None, but the signature needs a float"),
        ((8,), {"inplace": None}, "inplace is None, but the signature needs a bool"),
    ],
)
def test_wrong_params(arguments: Any, named: Any, text: str) -> None:
    with pytest.raises(ParamError) as error:
        FusedAddLayerNormFwdOp(*arguments, **named)
    assert str(error.value) == f"FusedAddLayerNormFwdOp: {text}"


X = torch.randn(3, 64)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (X, X[:2]),
            "residual has shape [2, 64], but the signature needs [*B, *normalized_shape] = [3, 64]",
        ),
        ((X, X.half()), "residual has dtype float16, but the signature needs T = float32"),
        (
            (X, X, torch.randn(64), torch.randn(3, 64)),
            "bias has shape [3, 64], but the signature needs [*normalized_shape] = [64]",
        ),
        (
            (X.half(), X.half(), torch.randn(64).bfloat16()),
            "the call has T = float16 (x, residual), W = bfloat16 (weight)",
        ),
    ],
)
def test_wrong_calls(arguments: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        FusedAddLayerNormFwdOp(64)(*arguments)
    assert str(error.value).startswith(f"FusedAddLayerNormFwdOp: {text}")
