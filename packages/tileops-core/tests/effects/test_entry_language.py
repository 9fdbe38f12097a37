"""What else an entry can declare: shapes, dims, call-time numbers and params."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchRuntimeError

from tileops.core.errors import ArgumentError
from tileops.core.testing import GraphRecorder

from .cases import randn
from .declare import entry, inp, outp, param
from .effect_ops import ForTests


class EveryParamFwdOp(
    ForTests,
    entry=entry(
        "EveryParamFwdOp",
        param("whole", "int"),
        param("real", "float", optional="true", default="0.5"),
        param("flag", "bool", default="true"),
        param("mode", "str", default='"add"', choices='["add", "sub"]'),
        param("kind", "dtype", default='"float64"', choices='["float32", "float64"]'),
        param("axes", "shape", optional="true"),
        param("steps", "ints", default="[1, 2]"),
        param("weights", "floats", default="[1.0]"),
        inp("x", "*B whole"),
        outp("y", "*B whole", "kind"),
        dims="*B",
    ),
):
    """y = x ± sum of all numbers, in the dtype ``kind``"""

    def __init__(
        self,
        whole: int,
        real: float | None = 0.5,
        flag: bool = True,
        mode: str = "add",
        kind: torch.dtype = torch.float64,
        axes: Any = None,
        steps: Any = (1, 2),
        weights: Any = (1.0,),
        *,
        target: str | None = None,
    ) -> None:
        self.whole, self.real, self.flag, self.mode = whole, real, flag, mode
        self.kind, self.axes, self.steps, self.weights = kind, axes, steps, weights
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = sum([self.real or 0.0, self.flag, *(self.axes or ()), *self.steps, *self.weights])
        return x.to(self.kind) + (number if self.mode == "add" else -number)


def test_shapes_by_rank_an_expression_axis_and_a_call_time_number(ops: ModuleType) -> None:
    op = ops.PlaceFwdOp(target="filling")
    x, starts = randn(2, 3, 8), torch.tensor([0, 1, 5], dtype=torch.int32)
    compiled = torch.compile(op, backend=(recorder := GraphRecorder("aot_eager")), fullgraph=True)
    for positions in (torch.arange(3), torch.arange(6).view(2, 3)):
        for limit in (1, 2, 3, 4):
            expected = x + positions.clamp(max=limit)[..., None] + 5
            for _ in range(2):
                torch.testing.assert_close(op(x, positions, starts, limit), expected)
            torch.testing.assert_close(compiled(x, positions, starts, limit=limit), expected)
    # Each rank once with the first number, and once with every other.
    assert recorder.calls == [["tileops::effects_place_fwd"]] * len(recorder.graphs)
    assert len(recorder.graphs) <= 4
    # A size that already varied stands in the text by its symbol, so: a graph of plain sizes.
    torch._dynamo.reset()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True, dynamic=False)
    for call in (op, compiled):
        with pytest.raises((ArgumentError, TorchRuntimeError)) as error:
            call(x, positions, starts[:2], 3)
        assert "PlaceFwdOp: starts has shape [2], but the signature needs [B+1] = [3]" in (
            str(error.value)
        )
        with pytest.raises((ArgumentError, TorchRuntimeError)) as error:
            call(x, positions.view(-1, 1, 1), starts, 3)
        assert (
            "PlaceFwdOp: positions has shape [6, 1, 1], but the signature needs [S] or [B, S]"
            in (str(error.value))
        )
        with pytest.raises((ArgumentError, TorchRuntimeError)) as error:
            call(x, positions, starts, 0)
        assert "PlaceFwdOp: limit is 0; it must be positive" in str(error.value)


@pytest.mark.parametrize("backend", ["none", "aot_eager"])
def test_numbers_behind_an_optional_input_reach_forward_by_name(
    ops: ModuleType, backend: str
) -> None:
    """The boundary names them; ``forward`` was given them by position, and failed."""
    op = ops.CapFwdOp()
    call = op if backend == "none" else torch.compile(op, backend=backend, fullgraph=True)
    x, low, out = randn(3, 8), randn(3, 8), torch.empty(3, 8)
    for limit, shift in ((1, 0), (2, 3), (0, 5)):
        expected = torch.maximum(x, low).clamp(max=limit) + shift
        torch.testing.assert_close(call(x, low, shift, limit=limit), expected)
        assert call(x, low, limit=limit, shift=shift, out=out) is out
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(call(x, limit=limit), x.clamp(max=limit))


@pytest.mark.parametrize("bad", ["a", "b"])
def test_the_first_optional_input_that_is_there_binds_the_dim(ops: ModuleType, bad: str) -> None:
    op, x = ops.PairFwdOp(), randn(4)
    a, b = randn(3), randn(3)
    for given in ({}, {"a": a}, {"b": b}, {"a": a, "b": b}):
        expected = x + sum(tensor.sum() for tensor in given.values())
        torch.testing.assert_close(op(x, **given), expected)
    with pytest.raises(ArgumentError) as error:
        op(x, **{"a": a, "b": b, bad: randn(5)})
    shape, wanted = ("[3]", "[5]") if bad == "a" else ("[5]", "[3]")
    assert str(error.value) == (
        f"PairFwdOp: b has shape {shape}, but the signature needs [N] = {wanted}"
    )


def test_params_of_every_type_reach_the_key_and_the_node(ops: ModuleType) -> None:
    op = EveryParamFwdOp(
        8, None, False, mode="sub", kind=torch.float32, axes=3, steps=[4], weights=[1, 2.5]
    )
    assert op._key.partition("(")[2].rpartition("#")[0] == (
        "whole=8, real=None, flag=False, mode='sub', kind='float32', axes=(3,), steps=(4,), "
        "weights=(1.0, 2.5))"
    )
    x = randn(3, 8)
    y = torch.compile(op, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(y, x - 10.5)
    wide = EveryParamFwdOp(8)
    torch.testing.assert_close(wide(x), x.double() + 5.5)
