"""The rotary program: its layouts cover every head, the CUDA builds, and the numbers are right."""

from __future__ import annotations

import dataclasses
import math
import shutil
from typing import Any

import pytest
import torch
from rope_oracle import angles, assert_rotated, rotate

from tileops.core import tilelang_backend
from tileops.core.errors import CaptureError
from tileops.positional import RoPECacheFwdOp, RoPEFwdOp, RoPEMultimodalFwdOp
from tileops.positional.accesses import ITEMSIZE
from tileops.positional.angles import device_turns, turns
from tileops.positional.rope.configs import RotaryShape, choose_config
from tileops.positional.rope.programs import rope

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")

SHAPE = RotaryShape(
    dtype="bfloat16",
    heads_q=32,
    heads_k=8,
    head_dim=128,
    rotary_dim=128,
    interleaved=False,
    copies_rest=False,
    positions=None,
    cache=None,
    sectioned=False,
)


def shape(**changes: Any) -> RotaryShape:
    return dataclasses.replace(SHAPE, **changes)


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_head_has_a_layout(dtype: str, alignment: int) -> None:
    """One that reaches all pairs, with accesses where memory lets them be, and that launches."""
    for head_dim in (2, 6, 8, 24, 64, 80, 96, 128, 192, 256, 512, 576, 9000):
        for rotary_dim in {2, head_dim // 4 * 2, head_dim // 2 * 2, head_dim - 2} - {0}:
            for heads in (1, 2, 5, 40, 136, 1000):
                one = shape(dtype=dtype, heads_q=heads, head_dim=head_dim, rotary_dim=rotary_dim)
                found = choose_config(one, alignment)
                where = (one, found)
                size = ITEMSIZE[dtype]
                assert found.vector * size <= max(alignment, size), where
                assert found.vector * size <= 16, where
                assert one.pairs % found.vector == head_dim % found.vector == 0, where
                rest = (rotary_dim, head_dim)
                assert all(part % found.rest_vector == 0 for part in rest), where
                assert found.span % found.vector == 0, where
                assert found.span * found.blocks_across(one) >= one.pairs, where
                assert found.threads % 32 == 0, where
                assert 32 <= found.threads <= 256, where
                assert 8 * found.tokens * found.span <= 48 * 1024, where
                rounds = -(-found.tokens * one.heads * found.span // found.vector // found.threads)
                assert 1 <= found.batch <= max(rounds, 1), where
                assert found.rest(one) == found.rest_batch == 0, where
                copying = dataclasses.replace(one, copies_rest=rotary_dim < head_dim)
                found = choose_config(copying, alignment)
                where = (copying, found)
                rest = found.rest(copying)
                assert rest * found.rest_vector == head_dim - rotary_dim, where
                rounds = -(-found.tokens * one.heads * rest // found.threads)
                assert min(rounds, 1) <= found.rest_batch <= min(rounds, 6), where
                assert 8 * found.tokens * found.span <= 48 * 1024, where


def test_angles_are_exact_modulo_a_turn() -> None:
    """Integers wrap where floats round."""
    frequencies = [1.0, 0.1, 1e-7, 5e5 ** (-2 / 128), 3 * math.pi, 0.0]
    for word, frequency in zip(turns(frequencies), frequencies, strict=True):
        for position in (0, 1, -1, 1000, 2**20, -(2**31), 2**31 - 1):
            fraction = (position * word) % 2**64 / 2**64
            exact = position * frequency / (2 * math.pi) % 1
            # Half a unit of the integer, and what float64 loses of the turns that were made.
            away = abs(position) * (2**-65 + frequency * 2**-52) + 2**-60
            assert min(abs(fraction - exact), 1 - abs(fraction - exact)) <= away


def test_frequencies_are_kept_for_the_process() -> None:
    """A captured launch reads them when its op is gone."""
    words = tuple(turns([0.5, 0.25]))
    first = device_turns(words, torch.device("cpu"))
    assert device_turns(tuple(turns([0.5, 0.25])), torch.device("cpu")) is first
    assert first.tolist() == list(words)
    with torch.inference_mode():
        assert not device_turns((3, 1, 4), torch.device("cpu")).is_inference()


@needs_nvcc
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "*(uint4*)(held"),
        ({"dtype": "float32", "interleaved": True, "positions": "int64"}, "((int64_t*)IDS)"),
        ({"rotary_dim": 24, "head_dim": 96, "copies_rest": True}, "*(uint2*)(held"),
        ({"rotary_dim": 24, "head_dim": 96, "copies_rest": True}, "*(uint4*)(moving"),
        ({"positions": "int32", "cache": "float32", "heads_k": 0}, "CUDART_NAN_F"),
        ({"positions": "int64", "sectioned": True, "dtype": "float16"}, "half_t"),
    ],
)
def test_each_kind_of_program_builds(changes: Any, expected: str) -> None:
    """The CUDA compiles, and has the wide accesses that its heads allow."""
    one = shape(**changes)
    config = choose_config(one, 16)
    program = tilelang_backend.build(lambda: rope(one, config), arch="sm_90a")
    assert program.symbol == "rope"
    assert expected in program.source
    # Where a token begins is worked out in 64 bits.
    assert "((int64_t)blockIdx.x)" in program.source


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a"])
def test_other_architectures_build(arch: str) -> None:
    one = shape(positions="int64")
    assert tilelang_backend.build(lambda: rope(one, choose_config(one, 16)), arch=arch).source


# What follows launches. Memory that the results get is full of NaN before.


def poison(*shapes: Any, dtype: torch.dtype) -> None:
    """Leaves NaN in the memory that the allocator hands out next."""
    for one in shapes:
        torch.full(one, math.nan, dtype=dtype, device="cuda")


def tensor(sizes: Any, dtype: torch.dtype, offset: int = 0) -> torch.Tensor:
    """Normal numbers that start ``offset`` elements off 16 bytes."""
    flat = torch.randn(math.prod(sizes) + offset, device="cuda").to(dtype)
    return flat[offset:].view(sizes)


LAUNCHES = [
    # batch, length, heads, kv_heads, head_dim, rotary_dim, interleaved, offset
    (1, 1, 1, 1, 2, 2, False, 0),
    (2, 7, 32, 8, 128, 128, False, 0),
    (2, 7, 32, 8, 128, 128, True, 0),
    (3, 5, 7, 3, 80, 40, False, 1),
    (3, 5, 7, 3, 80, 80, True, 4),
    (1, 33, 64, 64, 96, 24, False, 0),
    (2, 9, 16, 16, 256, 64, True, 0),
    (3, 5, 2, 1, 256, 64, False, 0),  # several tokens a block, and the last block has fewer
    (1, 5, 40, 3, 576, 8, False, 0),  # more of the rest than is on its way at once
    (1, 3, 129, 1, 64, 64, True, 0),
    (1, 70, 1, 0, 64, 64, False, 0),
    (2, 3, 128, 1, 64, 64, True, 2),
    (1, 3, 2, 1, 9000, 8996, False, 0),
    (1, 257, 130, 7, 64, 32, False, 0),
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("batch", "length", "heads", "kv_heads", "width", "rotary", "interleaved", "offset"), LAUNCHES
)
@pytest.mark.parametrize("inplace", [False, True])
def test_matches_the_oracle(
    batch: int,
    length: int,
    heads: int,
    kv_heads: int,
    width: int,
    rotary: int,
    interleaved: bool,
    offset: int,
    inplace: bool,
    dtype: torch.dtype,
) -> None:
    op = RoPEFwdOp(rotary, 5e5, interleaved, inplace=inplace)
    for ids in (None, torch.randint(-70000, 70000, (length,), device="cuda")):
        q = tensor((batch, length, heads, width), dtype, offset)
        k = tensor((batch, length, kv_heads, width), dtype, offset) if kv_heads else None
        place = torch.arange(length) if ids is None else ids
        cos, sin = angles(place, rotary, 5e5)
        exact = [rotate(x, cos, sin, interleaved) for x in (q, k) if x is not None]
        for _ in range(2):
            poison(q.shape, *([] if k is None else [k.shape]), dtype=dtype)
            own = (q.clone(), None if k is None else k.clone()) if offset == 0 else (q, k)
            found = op(*own, ids)
            for result, wanted in zip(found if kv_heads else (found,), exact, strict=True):
                assert_rotated(result, wanted)
            if inplace and offset:
                break  # a second call would turn them again
    assert op.serving_target == "tilelang"


@pytest.mark.gpu
def test_sequences_with_positions_of_their_own() -> None:
    op, q = RoPEFwdOp(), tensor((4, 300, 8, 64), torch.bfloat16)
    ids = torch.randint(0, 131072, (4, 300), device="cuda", dtype=torch.int32)
    assert_rotated(op(q, position_ids=ids), rotate(q, *angles(ids, 64, 1e4), False))


@pytest.mark.gpu
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
def test_by_a_cache_with_positions_out_of_it(cache_dtype: torch.dtype) -> None:
    op = RoPECacheFwdOp()
    q, k = tensor((3, 50, 8, 64), torch.bfloat16), tensor((3, 50, 2, 64), torch.bfloat16)
    cache = torch.randn(40, 32, device="cuda").to(cache_dtype)
    ids = torch.randint(-5, 45, (3, 50), device="cuda")
    inside = (ids >= 0) & (ids < 40)
    rows = torch.where(inside[..., None], cache[ids.clamp(0, 39)].double(), math.nan)
    exact = [rotate(x, *rows.cpu().chunk(2, -1), False) for x in (q, k)]
    for found, wanted in zip(op(q, ids, cache, k), exact, strict=True):
        torch.testing.assert_close(
            found.cpu().double(), wanted, rtol=2**-8, atol=1.3e-5, equal_nan=True
        )


@pytest.mark.gpu
@pytest.mark.parametrize("apart", [False, True])
def test_multimodal(apart: bool) -> None:
    op = RoPEMultimodalFwdOp((24, 20, 20), 5e6, interleaved_sections=apart)
    q, k = tensor((2, 70, 28, 128), torch.float16), tensor((2, 70, 4, 128), torch.float16)
    ids = torch.randint(0, 5000, (3, 2, 70), device="cuda")
    rows = [0] * 24 + [1] * 20 + [2] * 20
    if apart:
        rows = [i % 3 if i < 60 else 0 for i in range(64)]
    every = [angles(ids[row], 128, 5e6) for row in range(3)]
    cos, sin = (torch.stack([every[r][n][..., i] for i, r in enumerate(rows)], -1) for n in (0, 1))
    for found, x in zip(op(q, ids, k), (q, k), strict=True):
        assert_rotated(found, rotate(x, cos, sin, False))


@pytest.mark.gpu
def test_a_captured_launch_outlives_its_op() -> None:
    """The frequencies that it reads are the process's."""
    q = tensor((8, 4, 64), torch.bfloat16)
    op = RoPEFwdOp(base=123456.0)
    op(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = op(q)
    del op
    torch.full((1 << 20,), -1, dtype=torch.int64, device="cuda")
    q.copy_(tensor((8, 4, 64), torch.bfloat16))
    found.fill_(math.nan)
    graph.replay()
    assert_rotated(found, rotate(q, *angles(torch.arange(8), 64, 123456.0), False))


@pytest.mark.gpu
def test_new_frequencies_are_not_captured() -> None:
    graph = torch.cuda.CUDAGraph()
    torch.zeros(1, device="cuda")
    text = "copied to cuda:0 at their first use"
    with pytest.raises(CaptureError, match=text), torch.cuda.graph(graph):
        device_turns((2, 7, 1, 8, 2, 8), torch.device("cuda", 0))


@pytest.mark.gpu
def test_offsets_pass_two_to_the_31() -> None:
    length, heads, width = 2**31 // 4096 + 3, 32, 128
    q = torch.empty(length, heads, width, dtype=torch.float16, device="cuda").normal_()
    op = RoPEFwdOp(inplace=True)
    ends = [slice(0, 4), slice(-4, None)]
    place = torch.arange(length)
    exact = [rotate(q[part], *angles(place[part], width, 1e4), False) for part in ends]
    op(q)
    for part, wanted in zip(ends, exact, strict=True):
        assert_rotated(q[part], wanted)
