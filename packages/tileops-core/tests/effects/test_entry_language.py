"""What else an entry can declare: shapes, dims, call-time numbers and params."""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchRuntimeError, Unsupported
from torch.fx.experimental.proxy_tensor import make_fx

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


class TogetherFwdOp(
    ForTests,
    entry=entry(
        "TogetherFwdOp",
        param("gives", "bool", default="true"),
        inp("x", "M"),
        inp("k", "M", optional="true", mutated="true"),
        inp("v", "M", optional="true", mutated="true"),
        outp("y", "M", buffer='"out"', when='"gives"'),
        '[[signature.rules]]\nrequire = "(k is None) == (v is None)"\n'
        'message = "k and v are given together, or neither"\n',
        dims="M",
    ),
):
    """k += x, v += x; y = 2 · x where ``gives``"""

    def __init__(self, gives: bool = True, *, target: str | None = None) -> None:
        self.gives = gives
        super().__init__(target=target)

    def forward(self, x: Any, k: Any = None, v: Any = None, *, out: Any = None) -> Any:
        for tensor in (k, v):
            if tensor is not None:
                tensor += x
        if out is not None:
            return torch.mul(x, 2, out=out)
        return x * 2 if self.gives else None


@pytest.mark.parametrize(
    ("gives", "given", "text"),
    [
        (True, ("k",), "k and v are given together, or neither"),
        (True, ("v", "out"), "k and v are given together, or neither"),
        (
            False,
            ("out",),
            "out is given, but the call has no y to fill it with: the signature has one only where "
            "gives",
        ),
    ],
)
def test_a_call_that_no_branch_serves_is_refused_by_its_rule(
    ops: ModuleType, gives: bool, given: tuple[str, ...], text: str
) -> None:
    """The rule leaves it no branch: it was told that the manifest's package has a fault."""
    op, x = TogetherFwdOp(gives), randn(4)
    for _ in range(2):
        with pytest.raises(ArgumentError) as error:
            op(x, **{name: randn(4) for name in given})
        assert str(error.value) == f"TogetherFwdOp: {text}"
        k, v = torch.zeros(4), torch.zeros(4)
        op(x, k, v)
        torch.testing.assert_close((k, v), (x, x))
    for dynamic in (False, True):
        compiled = torch.compile(op, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        with pytest.raises(Unsupported) as refused:
            compiled(x, **{name: randn(4) for name in given})
        assert f"ArgumentError('TogetherFwdOp: {text}')" in str(refused.value)


# -- call-time numbers that are none --------------------------------------------------------------

NO_INT: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "None"),
    "float": (lambda: 2.0, "of type float"),
    "bool": (lambda: True, "of type bool"),
    "text": (lambda: "2", "of type str"),
    "list": (lambda: [2], "of type list"),
    "tensor": (lambda: torch.tensor(2.5), "of type Tensor"),
    "tensor of an int": (lambda: torch.tensor(2), "of type Tensor"),
}


@pytest.mark.parametrize("wrong", NO_INT)
def test_a_number_that_is_no_int(ops: ModuleType, wrong: str) -> None:
    """A float was served by the plan of the int that it equals, and a tensor cut down to one."""
    make, came = NO_INT[wrong]
    text = f"CapFwdOp: limit is {came}, but the signature needs an int"
    op, x = ops.CapFwdOp(), randn(3, 8)
    for _ in range(3):
        with pytest.raises(ArgumentError) as error:
            op(x, limit=make())
        assert str(error.value) == text
        for limit in (1, 2):
            torch.testing.assert_close(op(x, limit=limit), x.clamp(max=limit))
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    with pytest.raises(Unsupported) as refused:
        compiled(x, limit=make())
    assert f"ArgumentError('{text}')" in str(refused.value)
    torch.testing.assert_close(compiled(x, limit=2), x.clamp(max=2))


def test_a_numpy_number_is_no_int(ops: ModuleType) -> None:
    """A compiler takes it for an array, so it is refused in eager too."""
    numpy = pytest.importorskip("numpy")
    with pytest.raises(ArgumentError) as error:
        ops.CapFwdOp()(randn(3, 8), limit=numpy.float32(2.5))
    assert str(error.value) == (
        "CapFwdOp: limit is of type float32, but the signature needs an int"
    )


@pytest.mark.parametrize("limit", [2**63, -(2**63) - 1])
def test_a_number_of_more_than_64_bits(ops: ModuleType, limit: int) -> None:
    op, x = ops.CapFwdOp(), randn(3, 8)
    with pytest.raises(ArgumentError) as error:
        op(x, limit=limit)
    assert str(error.value) == (
        f"CapFwdOp: limit is {limit}, but the signature needs an int of 64 bits"
    )
    torch.testing.assert_close(op(x, limit=2**63 - 1), x)


def test_what_stands_for_an_int_is_one(ops: ModuleType) -> None:
    """A member of an IntEnum, a symbolic size, and what torch.jit.trace has for a size."""
    op, x = ops.CapFwdOp(), randn(3, 8)
    torch.testing.assert_close(op(x, limit=enum.IntEnum("Limit", {"TWO": 2}).TWO), x.clamp(max=2))

    def capped(x: torch.Tensor) -> torch.Tensor:
        return op(x, limit=x.shape[0])

    compiled = torch.compile(capped, backend="aot_eager", fullgraph=True, dynamic=True)
    graph = make_fx(capped, tracing_mode="symbolic")(x)
    for rows in (3, 5):
        x = 9 * randn(rows, 8)
        torch.testing.assert_close(compiled(x), x.clamp(max=rows))
        torch.testing.assert_close(graph(x), x.clamp(max=rows))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_size_under_jit_trace(ops: ModuleType) -> None:
    op, x = ops.CapFwdOp(), randn(3, 8)
    traced = torch.jit.trace(lambda x: op(x, limit=x.shape[0]), (x,))
    torch.testing.assert_close(traced(9 * x), (9 * x).clamp(max=3))
