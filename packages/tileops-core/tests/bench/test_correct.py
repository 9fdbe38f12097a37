"""Inputs are a workload's own, and what is computed wrong from them is found."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core.bench import correct
from tileops.core.bench.baselines import Baseline, baselines_of, register_baseline
from tileops.core.bench.correct import judge, run_once, truth_of
from tileops.core.bench.inputs import call_bytes, make_arguments
from tileops.core.contract import cases
from tileops.core.errors import BenchError, DefinitionError
from tileops.manifest.calls import Call, resolve

CPU = torch.device("cpu")


def call_of(cls: Any, label: str) -> Call:
    return resolve(cls.entry, next(w for w in cls.entry.workloads if w.label == label))


def test_inputs_are_the_workloads_and_fresh_for_each_seed(ops: ModuleType) -> None:
    call = call_of(ops.BenchBumpFwdOp, "picked")
    first = make_arguments("BenchBumpFwdOp", call, CPU, 1)
    assert first["row"].tolist() == [0, 9, 2, 11]
    assert first["row"].dtype is torch.int64
    assert first["x"].shape == (4, 8)
    assert torch.equal(first["x"], make_arguments("BenchBumpFwdOp", call, CPU, 1)["x"])
    assert not torch.equal(first["x"], make_arguments("BenchBumpFwdOp", call, CPU, 2)["x"])
    assert call_bytes(call) == 4 * 8 * 4 + 16 * 8 * 4 + 4 * 8


def test_random_numbers_have_the_workloads_scale(ops: ModuleType) -> None:
    """Of weights as they are, products of real widths would overflow float16."""
    call = call_of(ops.BenchScaleFwdOp, "large")
    x = call.inputs["x"]
    assert x is not None
    scaled = dataclasses.replace(call, inputs={"x": dataclasses.replace(x, scale=0.125)})
    plain = make_arguments("BenchScaleFwdOp", call, CPU, 1)["x"]
    assert torch.equal(make_arguments("BenchScaleFwdOp", scaled, CPU, 1)["x"], plain / 8)


def test_places_in_another_tensor_are_not_made_up(ops: ModuleType) -> None:
    call = call_of(ops.BenchBumpFwdOp, "anywhere")
    with pytest.raises(BenchError) as raised:
        make_arguments("BenchBumpFwdOp", call, CPU, 1)
    assert str(raised.value) == (
        "BenchBumpFwdOp: the workload generates no values for row, which is int64, and random "
        "ones could point anywhere; name a generator for it in the entry"
    )


def verdict(ops: ModuleType, function: Any, slack: float = 1.0) -> str:
    call = call_of(ops.BenchScaleFwdOp, "small")
    arguments = make_arguments("BenchScaleFwdOp", call, CPU, 0)
    arguments["x"] = torch.arange(32.0).reshape(4, 8)
    truth = truth_of(ops.BenchScaleFwdOp(3.0), call, arguments)
    return judge(truth, run_once(function, call, truth.entry, arguments), slack).problem


def test_a_right_result_has_no_problem(ops: ModuleType) -> None:
    assert verdict(ops, ops.BenchScaleFwdOp(3.0)) == ""


def test_an_oracle_may_give_its_results_by_name(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is written beside the outputs, for which an entry has no tolerance."""
    (case,) = [case for case in cases() if case.op is ops.BenchScaleFwdOp]
    named = dataclasses.replace(case, oracle=lambda op, *, x: {"y": x * op.factor, "x": x})
    monkeypatch.setattr(correct, "cases", lambda: [named])
    assert verdict(ops, ops.BenchScaleFwdOp(3.0)) == ""
    assert verdict(ops, lambda x: x * 3.0001).startswith("y against the reference: ")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (
            lambda x: x * 3 + (x == 17),
            "y against the reference: 1 of 32 values are wrong, the first at [2, 1]: 52, and 51 "
            "is right to within 0.0001",
        ),
        (
            lambda x: torch.empty_like(x),
            "y against the reference: 32 of 32 values are wrong, the first at [0, 0]: nan, and 0 "
            "is right to within 2e-30",
        ),
        (lambda x: x.double(), "y is float64[4, 8], and float32[4, 8] is right"),
        (lambda x: None, "y is missing"),
    ],
    ids=["one value", "unwritten memory", "another dtype", "nothing"],
)
def test_a_wrong_result_is_told_where_it_is_wrong(
    ops: ModuleType, function: Any, problem: str
) -> None:
    assert verdict(ops, function) == problem


def test_the_formula_is_asked_too_and_others_may_round_more(ops: ModuleType) -> None:
    """1.5 tolerances off: within the two that the reference allows, and not within one."""

    def off(x: torch.Tensor) -> Any:
        return (x.double() * 3 * (1 + 1.5e-6)).float()

    assert verdict(ops, off).startswith("y against the formula: ")
    assert verdict(ops, off, slack=4.0) == ""


def test_what_a_call_writes_is_compared_and_its_inputs_survive(ops: ModuleType) -> None:
    call = call_of(ops.BenchBumpFwdOp, "picked")
    arguments = make_arguments("BenchBumpFwdOp", call, CPU, 3)
    before = arguments["x"].clone()
    op = ops.BenchBumpFwdOp()
    truth = truth_of(op, call, arguments)
    assert judge(truth, run_once(op, call, op.entry, arguments)).problem == ""
    nothing = run_once(lambda x, table, row: None, call, op.entry, arguments)
    assert judge(truth, nothing).problem.startswith("x against the reference: 32 of 32 values")
    assert torch.equal(arguments["x"], before)


def test_baselines_are_the_familys(ops: ModuleType) -> None:
    (baseline,) = baselines_of(ops.BenchScaleFwdOp)
    assert baseline.name == "torch"
    with pytest.raises(DefinitionError) as raised:
        register_baseline(Baseline(ops.BenchScaleFwdOp, print, "inductor"))
    assert str(raised.value) == (
        "a baseline of BenchScaleFwdOp cannot be named 'inductor': reports use the name"
    )
    with pytest.raises(DefinitionError) as raised:
        register_baseline(Baseline(ops.BenchScaleFwdOp, print))
    assert str(raised.value) == (
        f"BenchScaleFwdOp has a baseline 'torch' of {ops.__name__} already; give the one of "
        "builtins another name"
    )
