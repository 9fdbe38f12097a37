"""FusedQKNormRoPEFwdOp: what its users see, its layouts, and its kernel's numbers."""

from __future__ import annotations

import dataclasses
import math
import shutil
from typing import Any

import pytest
import torch
from rope_oracle import ALLOWED, angles, rotate

from tileops.core import tilelang_backend
from tileops.core.errors import ArgumentError, ParamError
from tileops.positional import FusedQKNormRoPEFwdOp
from tileops.positional.accesses import ITEMSIZE
from tileops.positional.fused_qk_norm_rope.configs import (
    MOST_HELD,
    FusedShape,
    choose_config,
)
from tileops.positional.fused_qk_norm_rope.programs import fused_qk_norm_rope

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")


def oracle(
    op: FusedQKNormRoPEFwdOp,
    qkv: torch.Tensor,
    weights: Any,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> torch.Tensor:
    heads = qkv.cpu().double().unflatten(-1, (-1, op.head_dim))
    exact = heads.clone()
    ends = (0, op.num_heads_q, op.num_heads_q + op.num_heads_k)
    for n, weight in enumerate(weights):
        part = heads[..., ends[n] : ends[n + 1], :]
        part = part / (part.square().mean(-1, keepdim=True) + op.eps).sqrt()
        part = part * weight.cpu().double()
        exact[..., ends[n] : ends[n + 1], :] = rotate(part, cos, sin, op.interleaved)
    return exact.flatten(-2)


def assert_close(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Within the entry's tolerance: a rounding of the dtype, the norm's 4e-6, and 7e-5."""
    torch.testing.assert_close(
        found.cpu().double(),
        exact,
        rtol=ALLOWED[found.dtype] + 4e-6,
        atol=7e-5,
        equal_nan=True,
    )


def test_names_its_operators() -> None:
    name = "tileops::positional_fused_qk_norm_rope_fwd"
    assert FusedQKNormRoPEFwdOp.compile_op_names == (name, f"{name}_writes_qkv")


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "heads", "width", "rotary"),
    [((), (1, 1, 1), 2, None), ((2, 3), (6, 2, 2), 64, None), ((2,), (5, 3, 0), 30, 10)],
)
def test_equals_the_float64_formula(
    batch: Any,
    heads: Any,
    width: int,
    rotary: int | None,
    dtype: torch.dtype,
    interleaved: bool,
    inplace: bool,
) -> None:
    op = FusedQKNormRoPEFwdOp(*heads, width, 1e-5, rotary, interleaved=interleaved, inplace=inplace)
    qkv = (3 * torch.randn(*batch, 7, sum(heads) * width)).to(dtype)
    for weight_dtype in {dtype, torch.float32}:
        weights = [torch.randn(width).to(weight_dtype) for _ in range(2)]
        for ids in (None, torch.randint(-900, 900, (7,)), torch.randint(0, 9, (*batch, 7))):
            place = torch.arange(7) if ids is None else ids
            exact = oracle(op, qkv, weights, *angles(place, rotary or width, 1e4))
            given = qkv.clone()
            found = op(given, *weights, ids)
            assert (found is given) == inplace
            assert_close(found, exact)
            values = (heads[0] + heads[1]) * width
            torch.testing.assert_close(found[..., values:], qkv[..., values:], rtol=0, atol=0)


def test_by_a_cache() -> None:
    op = FusedQKNormRoPEFwdOp(4, 2, 2, 16)
    qkv, weights = torch.randn(3, 5, 128), [torch.randn(16) for _ in range(2)]
    cache, ids = torch.randn(9, 12), torch.randint(0, 9, (3, 5))
    found = op(qkv, *weights, ids, cache)
    assert_close(found, oracle(op, qkv, weights, *cache[ids].double().chunk(2, -1)))
    torch.testing.assert_close(found, op(qkv, *weights, ids, cos_sin_cache=cache))


def test_a_position_out_of_the_cache_is_nan_or_is_refused() -> None:
    qkv, weights = torch.randn(5, 48), [torch.randn(8) for _ in range(2)]
    cache = torch.randn(3, 8)
    found = FusedQKNormRoPEFwdOp(3, 1, 2, 8)(qkv, *weights, None, cache)
    assert found[3:, :32].isnan().all()
    assert not found[:3].isnan().any()
    torch.testing.assert_close(found[:, 32:], qkv[:, 32:], rtol=0, atol=0)
    checked = FusedQKNormRoPEFwdOp(3, 1, 2, 8, check_positions=True)
    with pytest.raises(ArgumentError) as error:
        checked(qkv, *weights, None, cache)
    assert str(error.value) == (
        "FusedQKNormRoPEFwdOp: the positions go from 0 to 4, but cos_sin_cache has 0 to 2; give a "
        "longer cache, or other position_ids"
    )
    assert not checked(qkv[:3], *weights, None, cache).isnan().any()
    assert not checked(qkv, *weights).isnan().any()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: FusedQKNormRoPEFwdOp(4, 0, 2, 8),
            "FusedQKNormRoPEFwdOp: num_heads_q is 4, num_heads_k is 0 and num_heads_v is 2; the "
            "first two are at least 1, the last at least 0",
        ),
        (
            lambda: FusedQKNormRoPEFwdOp(4, 2, 2, 7),
            "FusedQKNormRoPEFwdOp: head_dim is 7; it is even and above 0",
        ),
        (
            lambda: FusedQKNormRoPEFwdOp(4, 2, 2, 8, rotary_dim=10),
            "FusedQKNormRoPEFwdOp: rotary_dim is 10, more than the 8 of a head",
        ),
    ],
)
def test_params_are_checked(make: Any, text: str) -> None:
    with pytest.raises(ParamError) as error:
        make()
    assert str(error.value) == text


def test_arguments_are_checked() -> None:
    op, weight = FusedQKNormRoPEFwdOp(4, 2, 2, 8, rotary_dim=4), torch.ones(8)
    with pytest.raises(ArgumentError) as error:
        op(torch.zeros(5, 65), weight, weight)
    assert str(error.value) == (
        "FusedQKNormRoPEFwdOp: qkv has shape [5, 65], but the signature needs "
        "[*B, S, (num_heads_q + num_heads_k + num_heads_v) * head_dim] = [5, 64]"
    )
    with pytest.raises(ArgumentError) as error:
        op(torch.zeros(5, 64), weight, weight, None, torch.zeros(5, 8))
    assert str(error.value) == (
        "FusedQKNormRoPEFwdOp: cos_sin_cache has rows of 8 numbers, and rotary_dim is 4; give rows "
        "of that many, or leave rotary_dim None"
    )


SHAPE = FusedShape(
    dtype="bfloat16",
    weight_dtype="bfloat16",
    heads_q=32,
    heads_k=8,
    heads_v=8,
    head_dim=128,
    rotary_dim=128,
    interleaved=False,
    inplace=True,
    positions=None,
    cache=None,
)


def shape(**changes: Any) -> FusedShape:
    return dataclasses.replace(SHAPE, **changes)


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("weight_dtype", ["float16", "float32"])
def test_every_head_has_a_layout(weight_dtype: str, alignment: int) -> None:
    """One that reaches all of it, with accesses where memory lets them be, and that launches."""
    for head_dim in (2, 6, 8, 24, 64, 80, 96, 128, 192, 256, 512, 576, 9000):
        for rotary_dim in {2, head_dim // 4 * 2, head_dim // 2 * 2, head_dim - 2} - {0}:
            for heads in (1, 2, 5, 40, 136, 1000):
                one = shape(
                    dtype="float16",
                    weight_dtype=weight_dtype,
                    heads_q=heads,
                    head_dim=head_dim,
                    rotary_dim=rotary_dim,
                )
                found = choose_config(one, alignment)
                where = (one, found)
                assert found.vector * 2 <= 16, where
                if alignment < 16:
                    widest = ITEMSIZE[weight_dtype]
                    assert found.vector == 1 or found.vector * widest <= alignment, where
                assert one.pairs % found.vector == head_dim % found.vector == 0, where
                assert found.lanes in (1, 2, 4, 8, 16, 32), where
                assert found.items(one) * found.lanes * found.vector >= one.pairs, where
                rest = head_dim - rotary_dim
                assert found.rest(one) * found.lanes * found.vector >= rest, where
                assert found.threads % 32 == 0, where
                assert 32 <= found.threads <= 256, where
                if found.held:
                    assert 8 * found.tokens * one.pairs <= 48 * 1024, where
                    slots = 2 * found.items(one) + found.rest(one)
                    assert slots * found.vector <= MOST_HELD, where


@needs_nvcc
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "*(uint4*)(held"),
        ({"inplace": False, "weight_dtype": "float32", "positions": "int64"}, "*(float4*)(weight"),
        ({"head_dim": 9000, "rotary_dim": 8996, "heads_q": 2}, "sinpif"),
        ({"dtype": "float32", "cache": "float16", "weight_dtype": "float32"}, "CUDART_NAN_F"),
    ],
)
def test_each_kind_of_program_builds(changes: Any, expected: str) -> None:
    one = shape(**changes)
    config = choose_config(one, 16)
    program = tilelang_backend.build(lambda: fused_qk_norm_rope(one, config), arch="sm_90a")
    assert expected in program.source
    assert "__shfl_xor_sync" in program.source


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a"])
def test_other_architectures_build(arch: str) -> None:
    def make() -> Any:
        return fused_qk_norm_rope(SHAPE, choose_config(SHAPE, 16))

    assert tilelang_backend.build(make, arch=arch).source


@pytest.mark.gpu
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "length", "heads", "width", "rotary", "interleaved", "offset"),
    [
        (1, 1, (1, 1, 1), 2, None, False, 0),
        (2, 70, (32, 8, 8), 128, None, False, 0),
        (2, 70, (64, 8, 8), 128, None, True, 0),
        (3, 33, (5, 3, 2), 96, 24, False, 0),
        (3, 33, (16, 2, 2), 256, 64, True, 0),
        (2, 9, (7, 3, 0), 80, 40, False, 1),
        (2, 9, (7, 3, 5), 80, 80, True, 4),
        (1, 3, (2, 1, 1), 9000, 8996, False, 0),
        (2, 5, (4, 2, 2), 576, None, False, 0),
        (2, 5, (2, 1, 40), 128, None, False, 0),  # more values than are on their way at once
        (3, 7, (1, 1, 1), 64, None, False, 0),
    ],
)
def test_the_kernel(
    batch: int,
    length: int,
    heads: Any,
    width: int,
    rotary: int | None,
    interleaved: bool,
    offset: int,
    dtype: torch.dtype,
    inplace: bool,
) -> None:
    op = FusedQKNormRoPEFwdOp(*heads, width, 1e-5, rotary, interleaved=interleaved, inplace=inplace)
    size = (batch, length, sum(heads) * width)
    for weight_dtype in {dtype, torch.float32}:
        weights = [torch.randn(width, device="cuda").to(weight_dtype) for _ in range(2)]
        for ids in (None, torch.randint(0, 90000, (batch, length), device="cuda")):
            flat = torch.randn(math.prod(size) + offset, device="cuda").to(dtype)
            qkv = flat[offset:].view(size)
            place = torch.arange(length) if ids is None else ids
            exact = oracle(op, qkv, weights, *angles(place, rotary or width, 1e4))
            # What is freed here is what the result is made in.
            torch.full(size, math.nan, dtype=dtype, device="cuda")
            assert_close(op(qkv, *weights, ids), exact)
    assert op.serving_target == "tilelang"


@pytest.mark.gpu
def test_the_kernel_by_a_cache() -> None:
    op = FusedQKNormRoPEFwdOp(16, 4, 4, 128)
    qkv = torch.randn(3, 50, 24 * 128, device="cuda").bfloat16()
    weights = [torch.randn(128, device="cuda").bfloat16() for _ in range(2)]
    cache = torch.randn(40, 64, device="cuda")
    ids = torch.randint(-5, 45, (50,), device="cuda", dtype=torch.int32)
    inside = (ids >= 0) & (ids < 40)
    rows = torch.where(inside[:, None], cache[ids.clamp(0, 39)].double(), math.nan).cpu()
    assert_close(op(qkv, *weights, ids, cache), oracle(op, qkv, weights, *rows.chunk(2, -1)))
