"""FusedAddRMSNormFwdOp: what its users see, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.errors import ArgumentError, GradientError, ParamError
from tileops.core.testing import GraphRecorder
from tileops.norm import FusedAddRMSNormFwdOp, RMSNormFwdOp

from .formulas import DTYPES, HALVES, check, rand, rms_norm

OPERATOR = "tileops::norm_fused_add_rms_norm_fwd"
WRITING = f"{OPERATOR}_writes_x_writes_residual"


def call(
    op: FusedAddRMSNormFwdOp, x: torch.Tensor, residual: torch.Tensor, *weight: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The op's call on copies; in place it must return what it was given."""
    given = x.clone(), residual.clone()
    y, added = op(*given, *weight)
    assert (y is given[0], added is given[1]) == (op.inplace, op.inplace)
    if not op.inplace:
        assert torch.equal(given[0], x)
        assert torch.equal(given[1], residual)
    return y, added


def test_names_its_operators() -> None:
    assert FusedAddRMSNormFwdOp.compile_op_names == (OPERATOR, WRITING)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "shape", "eps"),
    [((), (7,), None), ((1,), (1,), 1e-6), ((3, 5), (129,), 1e-5), ((2, 1, 3), (4, 33), 0.0)],
)
def test_equals_the_float64_formula(
    dtype: torch.dtype, rows: Any, shape: Any, eps: float | None, inplace: bool
) -> None:
    """The norm is of the sum as it is rounded and returned."""
    op = FusedAddRMSNormFwdOp(shape, eps, inplace=inplace)
    x, residual = (rand(*rows, *shape, dtype=dtype) for _ in range(2))
    total = (x.float() + residual.float()).to(dtype)
    for weight in (None, *(rand(*shape, dtype=held) for held in {dtype, torch.float32})):
        y, added = call(op, x, residual, weight)
        assert torch.equal(added, total)
        check(y, rms_norm(total, len(shape), eps, weight), dtype)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_is_the_norm_of_the_sum_that_it_returns(dtype: torch.dtype, inplace: bool) -> None:
    """Bit by bit what the addition and RMSNorm give one after the other, and PyTorch's own."""
    x, residual, weight = (rand(*size, dtype=dtype) for size in ((6, 80), (6, 80), (80,)))
    op = FusedAddRMSNormFwdOp(80, 1e-6, inplace=inplace)
    y, added = call(op, x, residual, weight)
    assert torch.equal(added, x + residual)
    assert torch.equal(y, RMSNormFwdOp(80, 1e-6)(added, weight))
    theirs = functional.rms_norm(x + residual, (80,), weight, 1e-6)
    check(theirs, rms_norm(added, 1, 1e-6, weight), dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_sum_is_rounded_before_it_is_normalized(dtype: torch.dtype) -> None:
    """The norm of the sum as it was is another one, by more than the last rounding."""
    x, residual = rand(8, 128, dtype=dtype), rand(8, 128, dtype=dtype)
    y, added = FusedAddRMSNormFwdOp(128)(x, residual)
    check(y, rms_norm(added, 1, None), dtype)
    with pytest.raises(AssertionError):
        check(y, rms_norm(x.double() + residual.double(), 1, None), dtype)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("inplace", [False, True])
def test_compiles_into_the_node_of_its_branch(inplace: bool, backend: str) -> None:
    op = FusedAddRMSNormFwdOp(64, 1e-5, inplace=inplace)
    x, residual, weight = torch.randn(3, 64), torch.randn(3, 64), torch.randn(64)
    x, residual = x.bfloat16(), residual.bfloat16()
    recorder = GraphRecorder(backend)

    def step(x: torch.Tensor, residual: torch.Tensor) -> Any:
        y, added = op(x, residual, weight)
        return y * 2, added * 3

    expected = step(x.clone(), residual.clone())
    torch._dynamo.reset()
    given = x.clone(), residual.clone()
    found = torch.compile(step, backend=recorder, fullgraph=True)(*given)
    nodes = [name for name in recorder.calls[0] if name.startswith("tileops::")]
    assert nodes == [WRITING if inplace else OPERATOR]
    assert all(map(torch.equal, found, expected))
    y, added = FusedAddRMSNormFwdOp(64, 1e-5)(x, residual, weight)
    assert all(map(torch.equal, given, (y, added) if inplace else (x, residual)))


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_in_place_through_strides(backend: str | None) -> None:
    """Columns of one matrix: the results are written there, and what lies between stays."""
    op = FusedAddRMSNormFwdOp(48, inplace=True)
    whole = torch.randn(5, 120)
    before = whole.clone()
    x, residual = whole[:, 4:52], whole[:, 60:108]
    y, added = FusedAddRMSNormFwdOp(48)(x, residual)
    torch._dynamo.reset()
    run = op if backend is None else torch.compile(op, backend=backend, fullgraph=True)
    given = run(x, residual)
    assert torch.equal(x, y)
    assert torch.equal(residual, added)
    assert [one.stride() for one in given] == [(120, 1)] * 2
    for first, last in ((0, 4), (52, 60), (108, 120)):
        assert torch.equal(whole[:, first:last], before[:, first:last])


def test_strided_inputs_that_are_not_written() -> None:
    x, residual, weights = torch.randn(64, 5).t(), torch.randn(64, 5).t(), torch.randn(64, 2)
    arguments = (x, residual, weights[:, 1])
    found = FusedAddRMSNormFwdOp(64)(*arguments)
    assert all(one.is_contiguous() for one in found)
    plain = FusedAddRMSNormFwdOp(64)(*(one.contiguous() for one in arguments))
    assert all(map(torch.equal, found, plain))


def test_x_may_be_the_residual_where_neither_is_written() -> None:
    x = torch.randn(2, 16)
    op = FusedAddRMSNormFwdOp(16)
    for _ in range(2):  # cold, and as it is planned
        y, added = op(x, x)
        assert torch.equal(added, 2 * x)
        check(y, rms_norm(2 * x, 1, None), torch.float32)


def overlaps() -> dict[str, tuple[tuple[torch.Tensor, ...], str]]:
    x, line = torch.randn(2, 16), torch.randn(3 * 16)
    shares = "is written and shares memory with {}; pass tensors that do not overlap, such as {}"
    return {
        "the same tensor": ((x, x), "x " + shares.format("residual", "residual.clone()")),
        "views that overlap": (
            (line[:32].view(2, 16), line[8:40].view(2, 16)),
            "x " + shares.format("residual", "residual.clone()"),
        ),
        "a weight in the residual": (
            (x, line[:32].view(2, 16), line[16:32]),
            "residual " + shares.format("weight", "weight.clone()"),
        ),
        "a repeated row": (
            (line[:16].expand(2, 16), torch.randn(2, 16)),
            "x is written, and several of its elements share one memory location (strides "
            "[0, 1]); pass a tensor that owns its elements, such as x.contiguous()",
        ),
    }


@pytest.mark.parametrize("case", overlaps())
def test_written_tensors_that_share_memory_are_refused(case: str) -> None:
    arguments, text = overlaps()[case]
    before = [one.clone() for one in arguments]
    with pytest.raises(ArgumentError) as error:
        FusedAddRMSNormFwdOp(16, inplace=True)(*arguments)
    assert str(error.value) == f"FusedAddRMSNormFwdOp: {text}"
    assert all(map(torch.equal, arguments, before))
    FusedAddRMSNormFwdOp(16)(*arguments)


def test_a_leaf_that_requires_grad_is_not_written() -> None:
    x, residual = torch.randn(2, 16), torch.nn.Parameter(torch.randn(2, 16))
    before = x.clone(), residual.detach().clone()
    with pytest.raises(GradientError) as error:
        FusedAddRMSNormFwdOp(16, inplace=True)(x, residual)
    assert str(error.value) == (
        "FusedAddRMSNormFwdOp: residual is written and is a leaf that requires grad; call the op "
        "under torch.no_grad(), or pass residual.detach()"
    )
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])
    with torch.no_grad():
        FusedAddRMSNormFwdOp(16, inplace=True)(x, residual)
    assert torch.equal(residual, before[0] + before[1])


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_offset_is_added_in_float32(dtype: torch.dtype, inplace: bool) -> None:
    """1 + 2**-12 is no float16 or bfloat16: to round it would lose the weight."""
    x, residual = rand(3, 64, dtype=dtype), rand(3, 64, dtype=dtype)
    weight = rand(64, dtype=dtype, spread=2.0**-10)
    op = FusedAddRMSNormFwdOp(64, 1e-6, weight_offset=1.0, inplace=inplace)
    y, added = call(op, x, residual, weight)
    check(y, rms_norm(added, 1, 1e-6, weight, 1.0), dtype)


def test_is_vllms_fused_add_rms_norm_but_for_a_rounding() -> None:
    """vLLM adds and rounds as the op does in place; it rounds once more before the weight."""
    x, residual, weight = (rand(*s, dtype=torch.bfloat16) for s in ((4, 96), (4, 96), (96,)))
    total = x + residual
    variance = total.float().pow(2).mean(-1, keepdim=True)
    theirs = (total.float() * torch.rsqrt(variance + 1e-5)).bfloat16() * weight
    y, added = call(FusedAddRMSNormFwdOp(96, 1e-5, inplace=True), x, residual, weight)
    assert torch.equal(added, total)
    torch.testing.assert_close(y, theirs, rtol=3 * 2.0**-8, atol=0)


def test_agrees_with_pytorch_where_it_is_not_finite() -> None:
    x, residual = torch.randn(4, 16), torch.randn(4, 16)
    x[0, 3], x[1, 5], residual[2, 7] = float("nan"), float("inf"), -float("inf")
    x[3, 2], residual[3, 2] = float("inf"), -float("inf")
    y, added = FusedAddRMSNormFwdOp(16, 1e-5)(x, residual)
    torch.testing.assert_close(added, x + residual, equal_nan=True, rtol=0, atol=0)
    expected = functional.rms_norm(x + residual, (16,), eps=1e-5)
    torch.testing.assert_close(y, expected, equal_nan=True)


@pytest.mark.parametrize("size", [(0, 16), (4, 0)])
@pytest.mark.parametrize("inplace", [False, True])
def test_no_elements(inplace: bool, size: tuple[int, int]) -> None:
    op, x, residual = FusedAddRMSNormFwdOp(size[1], inplace=inplace), *torch.empty(2, *size)
    found = op(x, residual)
    assert [one.shape for one in found] == [size] * 2
    assert all(one is given for one, given in zip(found, (x, residual), strict=True)) == inplace


def test_shared_is_one_instance_a_branch() -> None:
    op = FusedAddRMSNormFwdOp.shared(64, 1e-5)
    assert FusedAddRMSNormFwdOp.shared((64,), 1e-5, weight_offset=0) is op
    assert FusedAddRMSNormFwdOp.shared(64, 1e-5, inplace=True) is not op


@pytest.mark.parametrize(
    ("arguments", "named", "text"),
    [
        (((),), {}, "normalized_shape has no axes; at least one is normalized"),
        ((8, -1.0), {}, "eps is -1.0; it is at least 0"),
        ((8,), {"inplace": 1}, "inplace is 1, but the signature needs a bool"),
        ((8,), {"weight_offset": None}, "weight_offset is None, but the signature needs a float"),
    ],
)
def test_wrong_params(arguments: Any, named: Any, text: str) -> None:
    with pytest.raises(ParamError) as error:
        FusedAddRMSNormFwdOp(*arguments, **named)
    assert str(error.value) == f"FusedAddRMSNormFwdOp: {text}"


X = torch.randn(3, 64)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (X, X[:2]),
            "residual has shape [2, 64], but the signature needs [*B, *normalized_shape] = [3, 64]",
        ),
        (
            (X, X[0]),
            "residual has shape [64], but the signature needs [*B, *normalized_shape] = [3, 64]",
        ),
        ((X, X.half()), "residual has dtype float16, but the signature needs T = float32"),
        (
            (X, X.clone(), torch.randn(63)),
            "weight has shape [63], but the signature needs [*normalized_shape] = [64]",
        ),
        ((X, None), "residual is None, but the signature needs a Tensor"),
        (
            (X, X),
            "weight_offset is 1.0, and there is no weight to add it to; pass a weight, or make the "
            "op with weight_offset=0.0",
        ),
    ],
)
def test_wrong_calls(arguments: Any, text: str) -> None:
    op = FusedAddRMSNormFwdOp(64, weight_offset=1.0 if "offset" in text else 0.0)
    with pytest.raises(ArgumentError) as error:
        op(*arguments)
    assert str(error.value) == f"FusedAddRMSNormFwdOp: {text}"
