"""AdaLayerNormFwdOp and AdaLayerNormZeroFwdOp: what their users see, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.errors import ArgumentError, ParamError
from tileops.core.testing import GraphRecorder
from tileops.norm import AdaLayerNormFwdOp, AdaLayerNormZeroFwdOp

from .formulas import DTYPES, HALVES, Bounded, check, layer_norm, rand

ADA, ZERO = "tileops::norm_ada_layer_norm_fwd", "tileops::norm_ada_layer_norm_zero_fwd"
OPS = [AdaLayerNormFwdOp, AdaLayerNormZeroFwdOp]


def tokens(rows: torch.Tensor) -> torch.Tensor:
    return rows[:, None] if rows.dim() == 2 else rows


def ada(v: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6) -> Bounded:
    return layer_norm(v, 1, eps, 1 + tokens(scale).double(), tokens(shift))


def modulation(size: tuple[int, int, int], rank: int, dtype: torch.dtype) -> torch.Tensor:
    return rand(*(size if rank == 3 else (size[0], size[2])), dtype=dtype)


def arguments(op: Any, size: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> Any:
    """Rows a sample."""
    many = 1 if op is AdaLayerNormFwdOp else 2
    return [
        *(rand(*size, dtype=dtype) for _ in range(many)),
        *(modulation(size, 2, dtype) for _ in range(many + 1)),
    ]


def tuple_of(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def test_name_their_operators() -> None:
    assert [op.compile_op_names for op in OPS] == [(ADA,), (ZERO,)]


@pytest.mark.parametrize("ranks", [(2, 2), (2, 3), (3, 2), (3, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(2, 5, 129), (1, 1, 1), (3, 2, 96)])
def test_equals_the_float64_formula(size: Any, dtype: torch.dtype, ranks: Any) -> None:
    x = rand(*size, dtype=dtype)
    scale, shift = (modulation(size, rank, dtype) for rank in ranks)
    check(AdaLayerNormFwdOp()(x, scale, shift), ada(x, scale, shift), dtype)


@pytest.mark.parametrize("ranks", [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3), (3, 3, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(2, 5, 129), (3, 2, 96)])
def test_zero_equals_the_float64_formula(size: Any, dtype: torch.dtype, ranks: Any) -> None:
    """The norm is of the gated sum as it is rounded and returned."""
    x, residual = rand(*size, dtype=dtype), rand(*size, dtype=dtype)
    gate, scale, shift = (modulation(size, rank, dtype) for rank in ranks)
    y, added = AdaLayerNormZeroFwdOp()(x, residual, gate, scale, shift)
    product = tokens(gate).double() * x.double()
    exact = residual.double() + product
    if dtype is torch.float32:
        # The product may be rounded before the sum is: half a step of each.
        half_steps = 2.0**-24 * (product.abs() + exact.abs())
        assert bool(((added - exact).abs() <= 1.001 * half_steps).all())
    else:
        # The product is exact in float32, and so is where it rounds.
        assert torch.equal(added, exact.float().to(dtype))
    check(y, ada(added, scale, shift), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_is_the_composition_of_pytorchs_operators_in_float32(dtype: torch.dtype) -> None:
    x, scale, shift = arguments(AdaLayerNormFwdOp, (2, 5, 129), dtype)
    normal = functional.layer_norm(x.float(), (129,), eps=1e-6)
    theirs = normal * (1 + scale.float())[:, None] + shift.float()[:, None]
    check(theirs.to(dtype), ada(x, scale, shift), dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_nothing_is_rounded_on_the_way(dtype: torch.dtype) -> None:
    """As PyTorch's operators in half precision would: the difference that a shift leaves shows."""
    x, scale, _ = arguments(AdaLayerNormFwdOp, (2, 5, 128), dtype)
    shift = -ada(x, scale, scale[:, :1] * 0).value.to(dtype)
    y = AdaLayerNormFwdOp()(x, scale, shift)
    check(y, ada(x, scale, shift), dtype)
    normal = functional.layer_norm(x, (128,), eps=1e-6)
    with pytest.raises(AssertionError):
        check(normal * (1 + scale)[:, None] + shift, ada(x, scale, shift), dtype)


def test_a_gate_of_zero_passes_the_residual_on() -> None:
    x, residual, _, scale, shift = arguments(AdaLayerNormZeroFwdOp, (2, 3, 40))
    y, added = AdaLayerNormZeroFwdOp()(x, residual, torch.zeros(2, 40), scale, shift)
    assert torch.equal(added, residual)
    assert torch.equal(y, AdaLayerNormFwdOp()(residual, scale, shift))


@pytest.mark.parametrize("mean", [1e2, 1e4])
def test_a_large_mean_leaves_the_variance_right(mean: float) -> None:
    x, scale, shift = arguments(AdaLayerNormFwdOp, (2, 3, 500))
    y = AdaLayerNormFwdOp()(x + mean, scale, shift)
    check(y, ada(x + mean, scale, shift), torch.float32)


@pytest.mark.parametrize("op", OPS)
def test_chunks_of_one_projection(op: Any) -> None:
    """As the models make modulations: rows that do not follow each other."""
    given = arguments(op, (2, 3, 40))
    rows = [one for one in given if one.dim() == 3]
    chunks = torch.randn(2, 6 * 40).chunk(6, dim=-1)[: len(given) - len(rows)]
    transposed = [one.transpose(0, 1).contiguous().transpose(0, 1) for one in rows]
    found = tuple_of(op()(*transposed, *chunks))
    plain = tuple_of(op()(*rows, *(one.contiguous() for one in chunks)))
    assert all(map(torch.equal, found, plain))
    assert all(one.is_contiguous() for one in found)


@pytest.mark.parametrize("op", OPS)
def test_not_finite(op: Any) -> None:
    """A row that is not finite is NaN, and what is beside it is not touched."""
    given = arguments(op, (3, 4, 16))
    given[0][0, 1, 3], given[0][1, 2, 5] = float("nan"), float("inf")
    y = tuple_of(op()(*given))[0]
    wrong = torch.zeros(3, 4, dtype=torch.bool)
    wrong[0, 1] = wrong[1, 2] = True
    assert torch.equal(y.isnan().all(-1), wrong)
    assert torch.equal(y.isnan().any(-1), wrong)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", [(0, 4, 16), (2, 0, 16), (2, 4, 0)])
def test_no_elements(op: Any, size: tuple[int, int, int]) -> None:
    for one in tuple_of(op()(*arguments(op, size))):
        assert one.shape == size
    for one in tuple_of(op()(*(one.to("meta") for one in arguments(op, size)))):
        assert one.shape == size


@pytest.mark.parametrize("op", OPS)
def test_compiles_into_one_node(op: Any) -> None:
    given = arguments(op, (2, 3, 64), torch.bfloat16)
    recorder = GraphRecorder("aot_eager")
    torch._dynamo.reset()
    found = torch.compile(op(), backend=recorder, fullgraph=True)(*given)
    assert [name for name in recorder.calls[0] if "::" in name] == list(op.compile_op_names)
    assert all(map(torch.equal, tuple_of(found), tuple_of(op()(*given))))


@pytest.mark.parametrize("op", OPS)
def test_shared_is_one_instance(op: Any) -> None:
    held = op.shared()
    assert op.shared(1e-6) is held
    assert op.shared(1e-5) is not held


@pytest.mark.parametrize("op", OPS)
def test_wrong_params(op: Any) -> None:
    with pytest.raises(ParamError) as error:
        op(-1e-6)
    assert str(error.value) == f"{op.__name__}: eps is -1e-06; it is at least 0"


X, ROW = torch.randn(2, 3, 64), torch.randn(2, 64)
WRONG = [
    (
        AdaLayerNormFwdOp,
        (X[0], ROW, ROW),
        "x has shape [3, 64], but the signature needs [B, S, N]",
    ),
    (
        AdaLayerNormFwdOp,
        (X, ROW[0], ROW),
        "scale has shape [64], but the signature needs [B, N] or [B, S, N]",
    ),
    (
        AdaLayerNormFwdOp,
        (X, ROW, torch.randn(2, 1, 64)),
        "shift has shape [2, 1, 64], but the signature needs [B, S, N] = [2, 3, 64], "
        "or [B, N] for all of S",
    ),
    (
        AdaLayerNormFwdOp,
        (X, ROW[:1], ROW),
        "scale has shape [1, 64], but the signature needs [B, N] = [2, 64]",
    ),
    (
        AdaLayerNormFwdOp,
        (X.half(), ROW, ROW.half()),
        "scale has dtype float32, but the signature needs T = float16",
    ),
    (
        AdaLayerNormZeroFwdOp,
        (X, X[:1], ROW, ROW, ROW),
        "residual has shape [1, 3, 64], but the signature needs [B, S, N] = [2, 3, 64]",
    ),
    (
        AdaLayerNormZeroFwdOp,
        (X, X, ROW, ROW, None),
        "shift is None, but the signature needs a Tensor",
    ),
]


@pytest.mark.parametrize(("op", "given", "text"), WRONG)
def test_wrong_calls(op: Any, given: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        op()(*given)
    assert str(error.value) == f"{op.__name__}: {text}"
