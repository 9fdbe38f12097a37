"""The rotary ops as their users see them, on the CPU; the kernels' own tests are beside these."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rope_oracle import angles, assert_rotated, rotate

from tileops.core.errors import ArgumentError
from tileops.core.testing import GraphRecorder
from tileops.positional import (
    RoPECacheFwdOp,
    RoPEFwdOp,
    RoPEMultimodalFwdOp,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
OPERATOR = "tileops::positional_rope_fwd"


def test_names_its_operators() -> None:
    assert RoPEFwdOp.compile_op_names == (
        OPERATOR,
        f"{OPERATOR}_writes_q_writes_k",
        f"{OPERATOR}_without_k_out",
        f"{OPERATOR}_writes_q_without_k_out",
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("batch", "length", "heads", "kv_heads", "width", "rotary"),
    [
        ((), 1, 1, 1, 2, 2),
        ((2,), 7, 6, 2, 64, 64),
        ((2, 3), 5, 3, 3, 30, 10),
        ((1,), 3, 5, 1, 8, 6),
    ],
)
def test_equals_the_float64_formula(
    batch: Any,
    length: int,
    heads: int,
    kv_heads: int,
    width: int,
    rotary: int,
    interleaved: bool,
    dtype: torch.dtype,
) -> None:
    op = RoPEFwdOp(None if rotary == width else rotary, 5e5, interleaved)
    q = torch.randn(*batch, length, heads, width).to(dtype)
    k = torch.randn(*batch, length, kv_heads, width).to(dtype)
    cos, sin = angles(torch.arange(length), rotary, 5e5)
    for found, x in zip(op(q, k), (q, k), strict=True):
        assert (found.shape, found.dtype, found.is_contiguous()) == (x.shape, dtype, True)
        assert_rotated(found, rotate(x, cos, sin, interleaved))
        torch.testing.assert_close(found[..., rotary:], x[..., rotary:], rtol=0, atol=0)
    assert_rotated(op(q), rotate(q, cos, sin, interleaved))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("shape", [(5,), (3, 5)])
def test_position_ids_of_all_sequences_or_of_each(shape: Any, dtype: torch.dtype) -> None:
    op, q, k = RoPEFwdOp(), torch.randn(3, 5, 4, 16), torch.randn(3, 5, 2, 16)
    ids = torch.randint(-3000, 3000, shape).to(dtype)
    cos, sin = angles(ids, 16, 1e4)
    for found, x in zip(op(q, k, ids), (q, k), strict=True):
        assert_rotated(found, rotate(x, cos, sin, False))


def test_far_positions_are_as_exact_as_near_ones() -> None:
    """A float32 angle would be off by a whole turn here."""
    op, q = RoPEFwdOp(base=1e6), torch.randn(3, 2, 8)
    ids = torch.tensor([2**31 - 1, -(2**31), 2**24 + 1])
    exact = [[p * 1e6 ** (-2 * i / 8) for i in range(4)] for p in ids.tolist()]
    cos = torch.tensor([[math.cos(a) for a in row] for row in exact], dtype=torch.float64)
    sin = torch.tensor([[math.sin(a) for a in row] for row in exact], dtype=torch.float64)
    assert_rotated(op(q, position_ids=ids), rotate(q, cos, sin, False))


@pytest.mark.parametrize("with_k", [True, False])
def test_in_place_writes_and_returns_the_callers_tensors(with_k: bool) -> None:
    op, plain = RoPEFwdOp(8, inplace=True), RoPEFwdOp(8)
    q = torch.randn(2, 5, 4, 16)
    k = torch.randn(2, 5, 2, 16) if with_k else None
    expected = plain(q, k)
    for _ in range(2):  # cold and warm
        own = q.clone(), None if k is None else k.clone()
        found = op(*own)
        results = found if with_k else (found,)
        for result, mine in zip(results, own, strict=False):
            assert result is mine
        wanted = expected if with_k else (expected,)
        for result, want in zip(results, wanted, strict=True):
            torch.testing.assert_close(result, want, rtol=0, atol=0)


def test_in_place_through_the_strides_of_packed_qkv() -> None:
    op, qkv = RoPEFwdOp(inplace=True), torch.randn(2, 5, 8, 16)
    before = qkv.clone()
    q, k, v = qkv.split((4, 2, 2), dim=2)
    op(q, k)
    expected = RoPEFwdOp()(before[:, :, :4], before[:, :, 4:6])
    torch.testing.assert_close(q, expected[0], rtol=0, atol=0)
    torch.testing.assert_close(k, expected[1], rtol=0, atol=0)
    torch.testing.assert_close(v, before[:, :, 6:], rtol=0, atol=0)


def test_transposed_heads() -> None:
    """[B, H, S, D] memory, as attention often has it, given as a view."""
    op, q = RoPEFwdOp(), torch.randn(2, 4, 5, 16).transpose(1, 2)
    found = op(q)
    assert found.is_contiguous()
    torch.testing.assert_close(found, op(q.contiguous()), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(0, 5, 2, 8), (3, 0, 2, 8), (3, 5, 0, 8)])
def test_nothing_to_rotate(shape: Any) -> None:
    q = torch.empty(shape)
    assert RoPEFwdOp()(q).shape == shape
    assert [y.shape for y in RoPEFwdOp()(q, q.clone())] == [shape, shape]


def test_no_queries_but_keys() -> None:
    k = torch.randn(2, 5, 3, 8)
    q, rotated = RoPEFwdOp()(torch.empty(2, 5, 0, 8), k)
    assert q.shape == (2, 5, 0, 8)
    torch.testing.assert_close(rotated, RoPEFwdOp()(k))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_into_the_node_of_its_branch(backend: str) -> None:
    op = RoPEFwdOp(inplace=True)
    q, k = torch.randn(2, 5, 4, 16), torch.randn(2, 5, 2, 16)
    expected = RoPEFwdOp()(q, k)
    recorder = GraphRecorder(backend)
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k: (op(q, k)[0] * 2, k), backend=recorder, fullgraph=True)
    with torch.no_grad():
        doubled, same = compiled(q, k)
    assert [call for call in recorder.calls[0] if "tileops" in call] == [
        f"{OPERATOR}_writes_q_writes_k"
    ]
    torch.testing.assert_close(doubled, expected[0] * 2)
    torch.testing.assert_close(k, expected[1])
    assert same.data_ptr() == k.data_ptr()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("cache_dtype", DTYPES)
def test_by_a_cache(cache_dtype: torch.dtype, interleaved: bool) -> None:
    op = RoPECacheFwdOp(interleaved)
    cache = torch.randn(11, 12).to(cache_dtype)
    q, k = torch.randn(3, 5, 4, 16), torch.randn(3, 5, 2, 16)
    for ids in (torch.randint(0, 11, (5,)), torch.randint(0, 11, (3, 5))):
        cos, sin = cache[ids].double().chunk(2, -1)
        for found, x in zip(op(q, ids, cache, k), (q, k), strict=True):
            torch.testing.assert_close(
                found.double(), rotate(x, cos, sin, interleaved), rtol=0, atol=1.3e-5
            )


def test_a_position_out_of_the_cache_is_nan_and_touches_nothing_else() -> None:
    op, cache = RoPECacheFwdOp(), torch.randn(7, 8)
    q = torch.randn(5, 2, 12)
    found = op(q, torch.tensor([6, 7, -1, 0, 2**40]), cache)
    out = torch.tensor([False, True, True, False, True])
    assert found[out][..., :8].isnan().all()
    assert not found[~out].isnan().any()
    torch.testing.assert_close(found[..., 8:], q[..., 8:], rtol=0, atol=0)
    assert op(q, torch.zeros(5, dtype=torch.int32), torch.empty(0, 8))[..., :8].isnan().all()


@pytest.mark.parametrize("inplace", [False, True])
def test_positions_are_checked_where_the_caller_asks(inplace: bool) -> None:
    """Also by a warm call, which runs nothing but its kernel where nothing is checked."""
    op, cache = RoPECacheFwdOp(check_positions=True, inplace=inplace), torch.randn(7, 8)
    q = torch.randn(5, 2, 8)
    for _ in range(2):
        assert not op(q.clone(), torch.arange(5), cache).isnan().any()
    for ids, low, high in ((torch.arange(5) + 3, 3, 7), (torch.arange(5) - 1, -1, 3)):
        before = q.clone()
        with pytest.raises(ArgumentError) as error:
            op(q, ids, cache)
        assert str(error.value) == (
            f"RoPECacheFwdOp: the positions go from {low} to {high}, but cos_sin_cache has 0 to 6; "
            f"give a longer cache, or other position_ids"
        )
        torch.testing.assert_close(q, before, rtol=0, atol=0)
    torch._dynamo.reset()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    assert not compiled(q.clone(), torch.arange(5), cache).isnan().any()
    with pytest.raises(ArgumentError, match="the positions go from 3 to 7"):
        compiled(q, torch.arange(5) + 3, cache)


SECTIONS = {
    ((2, 3, 3), False): [0, 0, 1, 1, 1, 2, 2, 2],
    ((0, 8, 0), False): [1] * 8,
    ((4, 2, 2), True): [0, 1, 2, 0, 1, 2, 0, 0],
    ((3, 3, 2), True): [0, 1, 2, 0, 1, 2, 0, 1],
}


@pytest.mark.parametrize(("sections", "apart"), SECTIONS)
@pytest.mark.parametrize("interleaved", [False, True])
def test_multimodal_positions(sections: Any, apart: bool, interleaved: bool) -> None:
    op = RoPEMultimodalFwdOp(sections, 1e6, interleaved, interleaved_sections=apart)
    q, k = torch.randn(2, 5, 4, 20), torch.randn(2, 5, 1, 20)
    ids = torch.randint(0, 500, (3, 2, 5))
    rows = SECTIONS[sections, apart]
    every = [angles(ids[row], 16, 1e6) for row in range(3)]
    cos, sin = (torch.stack([every[r][n][..., i] for i, r in enumerate(rows)], -1) for n in (0, 1))
    for found, x in zip(op(q, ids, k), (q, k), strict=True):
        assert_rotated(found, rotate(x, cos, sin, interleaved))
    assert_rotated(op(q, ids), rotate(q, cos, sin, interleaved))
