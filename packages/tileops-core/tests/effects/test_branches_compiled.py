"""Effect branches under every compiler: the same results, writes and identities as in eager."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core.testing import GraphRecorder

from .cases import CASES, LAYOUTS, Case, Tensors, check, make, randn
from .declare import entry, inp, outp
from .effect_ops import ForTests


class ProjectFwdOp(
    ForTests,
    entry=entry("ProjectFwdOp", inp("x", "M K"), inp("w", "K N"), outp("y", "M N"), dims="M K N"),
):
    """y = x @ w"""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.contiguous() @ w.contiguous()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiled(ops: ModuleType, case: Case, backend: str) -> None:
    op = make(case)
    recorder = GraphRecorder(backend)
    compiled = torch.compile(op, backend=recorder, fullgraph=True)
    check(case, compiled, case.inputs())
    (calls,) = recorder.calls
    assert [name for name in calls if "getitem" not in name] == [f"tileops::{case.operator}"]
    check(case, compiled, {n: LAYOUTS["transposed"](t) for n, t in case.inputs().items()})


def everything(ops: ModuleType) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function that calls every case's op between reads, and its formula."""
    built = {name: make(case) for name, case in CASES.items()}

    def run(calls: Any, inputs: dict[str, Tensors]) -> Any:
        found = {}
        for name in CASES:
            own = {key: value * 1 for key, value in inputs[name].items()}
            # Not 0-d: inductor of PyTorch 2.13 moves a read of such an input behind a later write
            # of it, whichever operator writes.
            middle = {key: value + 1 for key, value in own.items() if value.dim()}
            results = calls[name](**own)
            results = () if results is None else results
            found[name] = (results, middle, {key: value * 2 for key, value in own.items()})
            # And once on the caller's own tensors.
            calls[name](**inputs[name])
        return found

    formulas = {name: case.formula for name, case in CASES.items()}
    return lambda inputs: run(built, inputs), lambda inputs: run(formulas, inputs)


def same_everywhere(
    call: Callable[..., Any], formula: Callable[..., Any], layout: str = "plain"
) -> None:
    inputs = {
        name: {key: LAYOUTS[layout](tensor) for key, tensor in case.inputs().items()}
        for name, case in CASES.items()
    }
    wanted = {n: {key: t.clone() for key, t in group.items()} for n, group in inputs.items()}
    strides = {(n, key): t.stride() for n, group in inputs.items() for key, t in group.items()}
    expected = formula(wanted)
    torch.testing.assert_close(call(inputs), expected)
    torch.testing.assert_close(inputs, wanted)
    assert strides == {(n, k): t.stride() for n, group in inputs.items() for k, t in group.items()}


@pytest.mark.parametrize("layout", ["plain", "transposed"])
def test_inductor_keeps_every_write_among_its_neighbours(ops: ModuleType, layout: str) -> None:
    """All branches in one graph: functionalization and buffer reuse lose no write."""
    function, formula = everything(ops)
    same_everywhere(torch.compile(function, fullgraph=True), formula, layout)


def test_the_cpp_wrapper_calls_every_branch(ops: ModuleType) -> None:
    """It converts arguments and results itself: None, no result and several are its hard cases."""
    function, formula = everything(ops)
    with torch._inductor.config.patch(cpp_wrapper=True):
        same_everywhere(torch.compile(function, fullgraph=True), formula)


def test_export_save_and_load(ops: ModuleType) -> None:
    function, formula = everything(ops)

    class Model(torch.nn.Module):
        def forward(self, inputs: dict[str, Tensors]) -> Any:
            return function(inputs)

    inputs = {name: case.inputs() for name, case in CASES.items()}
    program = torch.export.export(Model(), (inputs,))
    stream = io.BytesIO()
    torch.export.save(program, stream)
    stream.seek(0)
    loaded = torch.export.load(stream).module()
    same_everywhere(loaded, formula)


def test_an_op_without_outputs_is_not_dead_code(ops: ModuleType) -> None:
    """Nothing reads a result of the node, and yet a compiler must keep it."""
    op = ops.BumpFwdOp()

    def function(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        room = torch.zeros_like(x)
        op(room, by)
        op(x, by)
        return room + by

    x, by = randn(3, 8), randn(8)
    before = x.clone()
    y = torch.compile(function, fullgraph=True)(x, by)
    torch.testing.assert_close(y, (2 * by).expand(3, 8))
    torch.testing.assert_close(x, before + by)
    assert op(x, by) is None


@pytest.mark.parametrize("backend", ["none", "aot_eager", "inductor"])
def test_autocast_changes_no_result(ops: ModuleType, backend: str) -> None:
    """Autocast is on in eager and off while AOTAutograd traces: a plain matmul differs."""
    op = ProjectFwdOp()
    call = op if backend == "none" else torch.compile(op, backend=backend, fullgraph=True)
    x, w = randn(4, 8), randn(8, 3)
    expected = x @ w
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ w).dtype is torch.bfloat16
        assert call(x, w).dtype is torch.float32
        torch.testing.assert_close(call(x, w), expected)
