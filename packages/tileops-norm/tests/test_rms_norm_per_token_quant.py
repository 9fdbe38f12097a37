"""RMSNormPerTokenQuantFwdOp and its form with a residual: what their users see, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.errors import ArgumentError, ParamError
from tileops.core.testing import GraphRecorder
from tileops.norm import (
    FusedAddRMSNormPerTokenQuantFwdOp,
    RMSNormFwdOp,
    RMSNormPerTokenQuantFwdOp,
)

from .formulas import DTYPES, HALVES, U, rand, rms_norm

FP8 = torch.float8_e4m3fn
QUANT = "tileops::norm_rms_norm_per_token_quant_fwd"
FUSED = "tileops::norm_fused_add_rms_norm_per_token_quant_fwd"
OPS = [RMSNormPerTokenQuantFwdOp, FusedAddRMSNormPerTokenQuantFwdOp]
LEAST = 1 / 512 / 448


def check_quantized(
    y: torch.Tensor,
    scale: torch.Tensor,
    v: torch.Tensor,
    axes: int,
    eps: float | None,
    weight: torch.Tensor,
    *,
    offset: float = 0.0,
    scale_ub: float | None = None,
) -> None:
    """Scales within the bound of the norm, values within half a step of fp8 of the quotient."""
    norm, bound = rms_norm(v, axes, eps, weight, offset)
    greatest = norm.abs().flatten(-axes).amax(-1, keepdim=True)
    off = bound.flatten(-axes).amax(-1, keepdim=True)
    if scale_ub is not None:
        greatest = greatest.clamp(max=scale_ub)
    expected = greatest.clamp(min=1 / 512) / 448
    assert (scale.shape, scale.dtype) == (expected.shape, torch.float32)
    assert bool(((scale - expected).abs() <= off / 448 + 2 * U * expected).all())
    # Against the op's own scale, so that what is left is the quotient and its rounding.
    of_row = scale.double().reshape(*scale.shape[:-1], *(1 for _ in range(axes)))
    quotient = (norm / of_row).clamp(-448, 448)
    half = torch.maximum(quotient.abs() * 2.0**-4, torch.tensor(2.0**-10))
    assert (y.shape, y.dtype, y.is_contiguous()) == (v.shape, FP8, True)
    error = (y.double() - quotient).abs()
    assert bool((error <= half * (1 + 2**-20) + bound / of_row + 2 * U * quotient.abs()).all())


def arguments(op: Any, rows: Any, shape: Any, dtype: torch.dtype = torch.float32) -> Any:
    many = 1 if op is RMSNormPerTokenQuantFwdOp else 2
    return [*(rand(*rows, *shape, dtype=dtype) for _ in range(many)), rand(*shape, dtype=dtype)]


def normalized(given: Any) -> torch.Tensor:
    """What the op normalizes: x, or the rounded sum."""
    return given[0] if len(given) == 2 else given[0] + given[1]


def test_name_their_operators() -> None:
    assert [op.compile_op_names for op in OPS] == [(QUANT,), (FUSED, f"{FUSED}_writes_residual")]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "shape", "eps"),
    [((), (7,), None), ((1,), (1,), 1e-6), ((3, 5), (129,), 1e-5), ((2, 1, 3), (4, 33), 0.0)],
)
def test_equals_the_float64_formula(
    op: Any, dtype: torch.dtype, rows: Any, shape: Any, eps: float | None
) -> None:
    given = arguments(op, rows, shape, dtype)
    for weight in (given[-1], given[-1].float()):
        y, scale, *added = op(shape, eps)(*given[:-1], weight)
        assert all(torch.equal(one, normalized(given)) for one in added)
        check_quantized(y, scale, normalized(given), len(shape), eps, weight)


@pytest.mark.parametrize("op", OPS)
def test_leading_axes_of_one(op: Any) -> None:
    """A scale's axes are those before the normalized ones, which a target cannot tell by sizes."""
    given = arguments(op, (1,), (1, 32))
    assert op((1, 32))(*given)[1].shape == (1, 1)
    assert op(32)(*given[:-1], given[-1][0])[1].shape == (1, 1, 1)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("scale_ub", [0.5, 1.5, 1e-4])
def test_an_upper_bound_clips(op: Any, scale_ub: float) -> None:
    given = arguments(op, (6,), (64,))
    y, scale = op(64, 1e-6, scale_ub=scale_ub)(*given)[:2]
    check_quantized(y, scale, normalized(given), 1, 1e-6, given[-1], scale_ub=scale_ub)
    assert bool((scale.double() <= max(scale_ub / 448, LEAST) * (1 + U)).all())
    assert float(y.float().abs().max()) == 448


@pytest.mark.parametrize("op", OPS)
def test_rows_of_zeros_have_the_least_scale(op: Any) -> None:
    given = [torch.zeros_like(one) for one in arguments(op, (2,), (40,))[:-1]]
    y, scale = op(40)(*given, torch.ones(40))[:2]
    assert torch.equal(scale, torch.full((2, 1), LEAST, dtype=torch.float64).float())
    assert torch.equal(y.float(), torch.zeros(2, 40))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gives_the_norm_back(dtype: torch.dtype) -> None:
    """To half a step of fp8, relative to the greatest of the row where a value is small."""
    x, weight = rand(8, 256, dtype=dtype), rand(256, dtype=dtype)
    y, scale = RMSNormPerTokenQuantFwdOp(256, 1e-5)(x, weight)
    norm = RMSNormFwdOp(256, 1e-5)(x.float(), weight.float())
    off = (y.float() * scale - norm).abs()
    assert bool((off <= norm.abs() * 2.0**-4 * 1.001 + scale * 2.0**-10 * 1.001).all())
    # The greatest of each row is 448 steps, and comes back as it was.
    assert torch.equal(y.float().abs().amax(-1), torch.full((8,), 448.0))


def test_a_tie_goes_to_even() -> None:
    """Scale 1: the greatest is 448; 17 and 19 lie in the middle of steps of 2."""
    weight = torch.tensor([448.0, 17.0, 19.0, -17.0, 16.0, 0.0009765625, 0.0029296875])
    y, scale = RMSNormPerTokenQuantFwdOp(7, 0.0)(torch.ones(1, 7), weight)
    assert scale.item() == 1
    assert y.float().tolist() == [[448, 16, 20, -16, 16, 0, 0.00390625]]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", HALVES)
def test_a_weight_offset_is_added_in_float32(op: Any, dtype: torch.dtype) -> None:
    *rows, _ = arguments(op, (3,), (64,), dtype)
    weight = rand(64, dtype=dtype, spread=2.0**-10)
    y, scale = op(64, 1e-6, weight_offset=1.0)(*rows, weight)[:2]
    v = normalized([*rows, weight])
    check_quantized(y, scale, v, 1, 1e-6, weight, offset=1.0)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("scale_ub", [None, 1.0])
def test_a_row_that_is_not_finite_is_nan_and_so_is_its_scale(op: Any, scale_ub: Any) -> None:
    given = arguments(op, (4,), (16,))
    given[0][0, 3], given[0][1, 5] = float("nan"), -float("inf")
    y, scale = op(16, scale_ub=scale_ub)(*given)[:2]
    assert scale.isnan().flatten().tolist() == [True, True, False, False]
    assert bool(y[:2].float().isnan().all())
    assert not bool(y[2:].float().isnan().any())


@pytest.mark.parametrize("op", OPS)
def test_no_rows(op: Any) -> None:
    y, scale = op(16)(*arguments(op, (0, 3), (16,)))[:2]
    assert (y.shape, scale.shape) == ((0, 3, 16), (0, 3, 1))


@pytest.mark.parametrize("op", OPS)
def test_strided_arguments(op: Any) -> None:
    *rows, weight = arguments(op, (5,), (64,))
    strided = [one.t().contiguous().t() for one in rows]
    weights = torch.stack([weight, weight], 1)
    plain, found = op(64)(*rows, weight), op(64)(*strided, weights[:, 0])
    assert all(one.is_contiguous() for one in found)
    assert torch.equal(found[0].view(torch.uint8), plain[0].view(torch.uint8))
    assert all(map(torch.equal, found[1:], plain[1:]))


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
def test_in_place_writes_the_sum_and_nothing_else(backend: str | None) -> None:
    op = FusedAddRMSNormPerTokenQuantFwdOp(64, 1e-5, inplace=True)
    x, residual, weight = arguments(FusedAddRMSNormPerTokenQuantFwdOp, (3,), (64,), torch.float16)
    plain = FusedAddRMSNormPerTokenQuantFwdOp(64, 1e-5)(x, residual, weight)
    given = x.clone(), torch.cat([residual] * 2, 1)[:, :64], weight.clone()
    recorder = GraphRecorder(backend or "eager")
    torch._dynamo.reset()
    run = op if backend is None else torch.compile(op, backend=recorder, fullgraph=True)
    y, scale, added = run(*given)
    if backend is None:
        assert added is given[1]
    else:
        nodes = [name for name in recorder.calls[0] if "::" in name]
        assert nodes == [f"{FUSED}_writes_residual"]
    assert torch.equal(y.view(torch.uint8), plain[0].view(torch.uint8))
    assert torch.equal(scale, plain[1])
    assert torch.equal(added, plain[2])
    assert all(map(torch.equal, given, (x, plain[2], weight)))


def test_in_place_overlaps_are_refused() -> None:
    x = torch.randn(2, 16)
    with pytest.raises(ArgumentError) as error:
        FusedAddRMSNormPerTokenQuantFwdOp(16, inplace=True)(x, x, torch.ones(16))
    assert str(error.value) == (
        "FusedAddRMSNormPerTokenQuantFwdOp: residual is written and shares memory with x; pass "
        "tensors that do not overlap, such as x.clone()"
    )


@pytest.mark.parametrize("op", OPS)
def test_compiles_into_one_node(op: Any) -> None:
    given = arguments(op, (3,), (64,), torch.bfloat16)
    recorder = GraphRecorder("aot_eager")
    torch._dynamo.reset()
    found = torch.compile(op(64), backend=recorder, fullgraph=True)(*given)
    assert [name for name in recorder.calls[0] if "::" in name] == [op.compile_op_names[0]]
    expected = op(64)(*given)
    assert torch.equal(found[0].view(torch.uint8), expected[0].view(torch.uint8))
    assert all(map(torch.equal, found[1:], expected[1:]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_residual_form_is_the_other_of_the_sum(dtype: torch.dtype) -> None:
    x, residual, weight = arguments(FusedAddRMSNormPerTokenQuantFwdOp, (5,), (80,), dtype)
    y, scale, added = FusedAddRMSNormPerTokenQuantFwdOp(80, scale_ub=2.0)(x, residual, weight)
    assert torch.equal(added, x + residual)
    plain = RMSNormPerTokenQuantFwdOp(80, scale_ub=2.0)(added, weight)
    assert torch.equal(y.view(torch.uint8), plain[0].view(torch.uint8))
    assert torch.equal(scale, plain[1])


def test_is_vllms_per_token_quant_but_for_a_rounding() -> None:
    """vLLM rounds the norm before the weight; its greatest, and so its scale, is off by that."""
    x, weight = rand(6, 96, dtype=torch.bfloat16), rand(96, dtype=torch.bfloat16)
    rounded = functional.rms_norm(x, (96,), eps=1e-6) * weight
    theirs = (rounded.float().abs().amax(-1, keepdim=True) / 448).clamp(min=LEAST)
    _, scale = RMSNormPerTokenQuantFwdOp(96, 1e-6)(x, weight)
    torch.testing.assert_close(scale, theirs, rtol=2.01 * 2.0**-8, atol=0)


@pytest.mark.parametrize("op", OPS)
def test_shared_is_one_instance(op: Any) -> None:
    held = op.shared(64, 1e-5, scale_ub=2)
    assert op.shared((64,), 1e-5, scale_ub=2.0, weight_offset=0) is held
    assert op.shared(64, 1e-5) is not held


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("arguments", "named", "text"),
    [
        (((),), {}, "normalized_shape has no axes; at least one is normalized"),
        (
            ((4, 0),),
            {},
            "normalized_shape is (4, 0); a row has at least one element, since a scale is taken of "
            "it",
        ),
        ((8, -1.0), {}, "eps is -1.0; it is at least 0"),
        ((8,), {"scale_ub": 0.0}, "scale_ub is 0.0; it is above 0"),
        ((8,), {"scale_ub": "1"}, "scale_ub is '1', but the signature needs a float, or None"),
    ],
)
def test_wrong_params(op: Any, arguments: Any, named: Any, text: str) -> None:
    with pytest.raises(ParamError) as error:
        op(*arguments, **named)
    assert str(error.value) == f"{op.__name__}: {text}"


X = torch.randn(3, 64)


@pytest.mark.parametrize(
    ("op", "given", "text"),
    [
        (
            RMSNormPerTokenQuantFwdOp,
            (X, None),
            "weight is None, but the signature needs a Tensor",
        ),
        (
            RMSNormPerTokenQuantFwdOp,
            (X, torch.randn(63)),
            "weight has shape [63], but the signature needs [*normalized_shape] = [64]",
        ),
        (
            RMSNormPerTokenQuantFwdOp,
            (X.to(FP8), torch.randn(64)),
            "x has dtype float8_e4m3fn, but the signature needs T = float16, bfloat16 or float32",
        ),
        (
            FusedAddRMSNormPerTokenQuantFwdOp,
            (X, X[:1], torch.randn(64)),
            "residual has shape [1, 64], but the signature needs [*B, *normalized_shape] = [3, 64]",
        ),
        (
            FusedAddRMSNormPerTokenQuantFwdOp,
            (X, X.bfloat16(), torch.randn(64)),
            "residual has dtype bfloat16, but the signature needs T = float32",
        ),
    ],
)
def test_wrong_calls(op: Any, given: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        op(64)(*given)
    assert str(error.value) == f"{op.__name__}: {text}"
