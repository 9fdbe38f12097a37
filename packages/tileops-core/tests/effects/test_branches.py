"""Effect branches in eager: what a call writes, fills, omits and returns, cold and warm."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from tileops.core.watch import set_dispatcher_bypass

from .cases import CASES, LAYOUTS, WRITING, Case, check, make, randn, tuples


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_branch_has_the_operator_that_the_specification_names(
    ops: ModuleType, case: Case
) -> None:
    assert f"tileops::{case.operator}" in getattr(ops, case.op).compile_op_names
    schema = getattr(torch.ops.tileops, case.operator).default._schema
    assert str(schema) == f"tileops::{case.operator}{case.schema}"


def test_suffixes_come_in_order_and_no_branch_is_invented(ops: ModuleType) -> None:
    assert ops.TurnFwdOp.compile_op_names == (
        "tileops::effects_turn_fwd",
        "tileops::effects_turn_fwd_writes_q_writes_k",
        "tileops::effects_turn_fwd_out",
        "tileops::effects_turn_fwd_writes_q_writes_k_out",
        "tileops::effects_turn_fwd_without_lse",
        "tileops::effects_turn_fwd_writes_q_writes_k_without_lse",
        "tileops::effects_turn_fwd_out_without_lse",
        "tileops::effects_turn_fwd_writes_q_writes_k_out_without_lse",
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", ["reference", "filling"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_eager(ops: ModuleType, case: Case, target: str, layout: str) -> None:
    """Cold, through a plan, and through the dispatcher; four layouts on one instance, so that a
    plan of one is not taken for another."""
    op = make(case, target)
    for _ in range(3):
        check(case, op, {n: LAYOUTS[layout](t) for n, t in case.inputs().items()})
        check(case, op, case.inputs())
    set_dispatcher_bypass(False)
    try:
        check(case, op, {n: LAYOUTS[layout](t) for n, t in case.inputs().items()})
    finally:
        set_dispatcher_bypass(True)


@pytest.mark.parametrize("case", [CASES[name] for name in WRITING], ids=WRITING)
def test_both_ways_move_version_counters_alike(ops: ModuleType, case: Case) -> None:
    """The bypass must bump what the dispatcher bumps, or a saved tensor's check passes wrongly."""
    op = make(case, "filling")
    moves = []
    for bypass in (True, True, False):
        set_dispatcher_bypass(bypass)
        inputs = case.inputs()
        before = {name: tensor._version for name, tensor in inputs.items()}
        op(**inputs)
        moves.append({name: t._version - before[name] for name, t in inputs.items()})
        set_dispatcher_bypass(True)
    assert moves[1] == moves[2]
    assert {n for n, moved in moves[1].items() if moved} == set(case.written)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_inference_mode(ops: ModuleType, case: Case) -> None:
    """Inference tensors count no versions; asking them for one raises."""
    op = make(case, "filling")
    with torch.inference_mode():
        for _ in range(2):
            inputs = case.inputs()
            wanted = {name: tensor.clone() for name, tensor in inputs.items()}
            expected = tuples(case.formula(**wanted))
            torch.testing.assert_close(tuples(op(**inputs)), expected)
            torch.testing.assert_close(inputs, wanted)


def test_one_tensor_in_two_places_does_not_bind_the_plan(ops: ModuleType) -> None:
    """A plan found tensors by identity: after ``op(x, x)``, ``op(x, z)`` computed ``op(x, x)``."""
    op = ops.TurnFwdOp(inplace=False, target="filling")
    x, z = randn(3, 8), randn(3, 8)
    torch.testing.assert_close(op(x, x), 5 * x)
    torch.testing.assert_close(op(x, z), 2 * x + 3 * z)


def test_a_warm_call_does_what_forward_does_besides_its_kernel(ops: ModuleType) -> None:
    """A plan repeated the launch alone: ``count.add_(1)`` in ``forward`` was lost from then on."""
    op = ops.BatchFwdOp(training=True, target="filling")
    x, mean, count = randn(3, 8), torch.zeros(8), torch.tensor(0)
    for _ in range(5):
        op(x, mean, count)
    assert count == 5
    # Of inference tensors nobody counts writes.
    op = ops.BatchFwdOp(training=True, target="filling")
    with torch.inference_mode():
        x, mean, count = randn(3, 8), torch.zeros(8), torch.tensor(0)
        for _ in range(5):
            op(x, mean, count)
        assert count == 5


@pytest.mark.parametrize("inference", [False, True])
def test_a_warm_call_that_writes_is_replayed(ops: ModuleType, inference: bool) -> None:
    """Looking for what ``forward`` writes by itself must not cost every writing op its plan."""
    op = ops.BumpFwdOp(target="filling")
    with torch.inference_mode(inference):
        x, by = randn(3, 8), randn(8)
        wanted = x + 3 * by
        op(x, by)
        op.forward = None
        op(x, by)
        op(x, by)
        torch.testing.assert_close(x, wanted)


def test_a_kernel_that_only_writes_is_launched(ops: ModuleType) -> None:
    """With no output to fill it used to count as having nothing to do."""
    op = ops.BumpFwdOp(target="filling")
    del ops.launches[:]
    x = torch.zeros(2, 8)
    for _ in range(3):
        op(x, torch.ones(8))
    assert ops.launches == ["BumpFwdOp"] * 3
    assert torch.equal(x, torch.full((2, 8), 3.0))
    op(torch.zeros(0, 8), torch.ones(8))
    assert ops.launches == ["BumpFwdOp"] * 3
    # Zero rows are still one more batch where the running sum is written.
    tally, total = ops.TallyFwdOp(target="filling"), torch.ones(8)
    for _ in range(3):
        assert tally(torch.zeros(0, 8), total=total).shape == (0, 8)
    assert ops.launches[3:] == ["TallyFwdOp"] * 3
