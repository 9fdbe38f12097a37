"""What the composites compute, beside formulas in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from calls import CASES, SMALL, drawn, exact, results

from tileops.composite import (
    AdaLNZeroBlockFwdOp,
    GatedMLPFwdOp,
    PreNormAttentionFwdOp,
    TransformerBlockFwdOp,
)
from tileops.core.testing import assert_close_to_oracle


def check(case: Any, op: Any, arguments: dict[str, Any]) -> None:
    found, right = results(op(**arguments)), exact(case, op, arguments)
    for output, value, truth in zip(op.entry.signature.outputs, found, right, strict=True):
        assert value.is_contiguous()
        assert_close_to_oracle(op, output.name, value, truth)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_float64_formula(name: str) -> None:
    case = CASES[name]
    op = case.make()
    for seed in range(5):
        check(case, op, drawn(case, seed))


@pytest.mark.parametrize("name", SMALL)
def test_strided_weights_and_activations(name: str) -> None:
    """As weights that lie in one tensor of all layers, or are transposed."""
    case = CASES[SMALL[name]]
    arguments = {}
    for key, value in drawn(case, 7).items():
        room = torch.full((*value.shape, 2), float("nan")).to(value.dtype)
        room[..., 0] = value
        arguments[key] = room[..., 0]
        if value.dim() == 2:
            arguments[key] = value.mT.contiguous().mT
    check(case, case.make(), arguments)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("axis", [0, 1])
def test_no_samples_or_no_tokens_give_none(name: str, axis: int) -> None:
    case = CASES[SMALL[name]]
    arguments = drawn(case)
    size = arguments["x"].shape[axis]
    for key, value in arguments.items():
        if key in ("x", "residual") or (key == "c" and axis == 0):
            arguments[key] = value.narrow(axis, 0, 0)
        elif key == "position_ids" and axis - (2 - value.dim()) >= 0:
            arguments[key] = value.narrow(axis - (2 - value.dim()), 0, 0)
    assert size > 0
    for value in results(case.make()(**arguments)):
        assert value.shape == arguments["x"].shape
        assert value.numel() == 0


def test_a_token_does_not_see_those_after_it() -> None:
    """Whatever the positions say: they rotate, and the order masks."""
    case = CASES["PreNormAttentionFwdOp-float32-qk-norm-positions"]
    op, arguments = case.make(), drawn(case)
    before, _ = op(**arguments)
    changed = {**arguments, "x": arguments["x"].clone()}
    changed["x"][:, 4:] += 1
    after, _ = op(**changed)
    torch.testing.assert_close(after[:, :4], before[:, :4])
    assert (after[:, 4:] - before[:, 4:]).abs().amax(-1).min() > 1e-3


def test_every_token_of_a_diffusion_block_sees_every_other() -> None:
    case = CASES["AdaLNZeroBlockFwdOp-float32-5-heads"]
    op, arguments = case.make(), drawn(case)
    before = op(**arguments)
    changed = {**arguments, "x": arguments["x"].clone()}
    changed["x"][:, -1] += torch.randn(75)
    assert (op(**changed) - before).abs().amax(-1).min() > 1e-6


def test_counted_positions_are_those_from_zero() -> None:
    case = CASES["TransformerBlockFwdOp-bfloat16-positions"]
    op, arguments = case.make(), drawn(case)
    counted = op(**{**arguments, "position_ids": torch.arange(9)})
    for other in (None, torch.arange(9).expand(2, 9)):
        found = op(**{**arguments, "position_ids": other})
        assert all(map(torch.equal, found, counted))


def test_a_closed_gate_leaves_the_tokens() -> None:
    """As at the start of training: all six modulations are zero, and the block is the identity."""
    case = CASES["AdaLNZeroBlockFwdOp-float32-5-heads"]
    arguments = drawn(case)
    arguments["ada_weight"].zero_()
    arguments["ada_bias"].zero_()
    assert torch.equal(case.make()(**arguments), arguments["x"])


def test_a_block_is_its_halves() -> None:
    block = TransformerBlockFwdOp(64, 4, 2, 16, activation="gelu")
    attention = PreNormAttentionFwdOp(64, 4, 2, 16)
    mlp = GatedMLPFwdOp(64, "gelu")
    x, residual, norm1, norm2 = (torch.randn(s) for s in ((2, 5, 64), (2, 5, 64), 64, 64))
    qkv, o, gate_up, down = (torch.randn(s) / 8 for s in ((128, 64), (64, 64), (90, 64), (64, 45)))
    attended, total = attention(x, residual, norm1, qkv, o)
    expected = mlp(attended, total, norm2, gate_up, down)
    found = block(x, residual, norm1, qkv, o, norm2, gate_up, down)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", SMALL)
def test_inputs_are_left_as_they_are(name: str) -> None:
    case = CASES[SMALL[name]]
    arguments = drawn(case)
    before = {key: value.clone() for key, value in arguments.items()}
    case.make()(**arguments)
    assert all(torch.equal(arguments[key], value) for key, value in before.items())


def test_autocast_changes_nothing() -> None:
    case = CASES["AdaLNZeroBlockFwdOp-float32-5-heads"]
    op: AdaLNZeroBlockFwdOp = case.make()  # type: ignore[assignment]
    arguments = drawn(case)
    plain = op(**arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(op(**arguments), plain)
