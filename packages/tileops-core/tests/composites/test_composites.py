"""Ops that are made of others: what base class, checks and compilers make of them."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
import torch
from composite_ops import (
    CLAIMS,
    PROJECT,
    OuterFwdOp,
    ProjectedFwdOp,
    ScaledFwdOp,
    entry_of,
    made,
)
from torch.fx.experimental.proxy_tensor import make_fx

from tileops.core import Op, conformance
from tileops.core.errors import ArgumentError, DefinitionError, GradientError, ParamError
from tileops.core.testing import GraphRecorder

NODE = "tileops::composites_scaled_fwd"
# Shared sub-ops keep who served them first, so that what looks at that has a factor of its own.
FACTORS = itertools.count(2.25, 0.25)
X, W = torch.randn(4, 8), torch.randn(6, 8)

each_composite = pytest.mark.parametrize("cls", [ProjectedFwdOp, OuterFwdOp])


def right(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    total = 2 * x + 1
    return (2 * total) @ weight.mT + (0 if bias is None else bias), total


def nodes(recorder: GraphRecorder) -> list[list[str]]:
    return [[name for name in calls if name.startswith("tileops")] for calls in recorder.calls]


@each_composite
def test_it_has_no_operator_and_its_sub_ops_are_shared(cls: Any) -> None:
    op = cls()
    assert cls.compile_op_names == ()
    torch.testing.assert_close(op(X, W), right(X, W))
    inner = op.inner if cls is OuterFwdOp else op
    assert inner.parts[0] is inner.parts[1] is ScaledFwdOp.shared(2.0)


@each_composite
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_it_compiles_cold_with_a_target_and_with_a_detected_one(cls: Any, backend: str) -> None:
    """The peer's composites failed cold where a target was given."""
    for target, claims in ((None, False), ("reference", False), ("noting", False), (None, True)):
        made.clear()
        CLAIMS[:] = [True] * claims
        torch._dynamo.reset()
        factor = next(FACTORS)
        op, recorder = cls(factor, target=target), GraphRecorder(backend)
        y, total = torch.compile(op, backend=recorder, fullgraph=True)(X, W)
        torch.testing.assert_close(total, factor * X + 1)
        torch.testing.assert_close(y, factor * total @ W.mT)
        assert nodes(recorder) == [[NODE, NODE]]
        served = "noting" if claims or target == "noting" else "reference"
        assert op.serving_target == served
        assert [call.factor for call in made] == ([factor] if served == "noting" else [])


def test_its_sub_ops_take_its_target() -> None:
    factor = next(FACTORS)
    op = OuterFwdOp(factor, target="noting")
    assert [part._explicit_target for part in (op.inner, *op.inner.parts)] == ["noting"] * 3
    assert op.serving_target is None
    op(X, W)
    assert op.serving_target == "noting"
    (kernel,) = op.iter_kernels()
    assert (kernel.target, kernel.call.factor) == ("noting", factor)
    assert OuterFwdOp(factor).inner is not op.inner


def test_sub_ops_that_other_targets_served_are_all_named() -> None:
    """One that does not take the composite's target shows."""

    class StrayFwdOp(Op, entry=entry_of("StrayFwdOp", PROJECT % ("ScaledFwdOp", 1))):
        def __init__(
            self, factor: float = 2.0, biased: bool = False, *, target: str | None = None
        ) -> None:
            self.factor, self.biased = factor, biased
            super().__init__(target=target)
            self.first = self.sub_op(ScaledFwdOp, factor)
            self.second = ScaledFwdOp(factor, target="reference")

        def forward(self, x: Any, weight: Any, bias: Any = None) -> Any:
            return self.second(self.first(x)) @ weight.mT, x

    op = StrayFwdOp(next(FACTORS), target="noting")
    op(X, W)
    assert op.serving_target == "noting, reference"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a shape": (
        {"weight": torch.randn(6, 7)},
        "weight has shape [6, 7], but the signature needs [G, N] = [6, 8]",
    ),
    "a size that another tensor has": (
        {"bias": torch.randn(7)},
        "bias has shape [7], but the signature needs [G] = [6]",
    ),
    "a dtype": (
        {"weight": W.bfloat16()},
        "weight has dtype bfloat16, but the signature needs T = float32",
    ),
    "a rule": ({"x": torch.randn(3, 8)}, "x has 3 rows; they are even in number"),
}


@each_composite
@pytest.mark.parametrize("wrong", WRONG)
def test_its_calls_are_checked_by_its_own_entry(cls: Any, wrong: str) -> None:
    """They were not: a matrix product said that shapes cannot be multiplied."""
    arguments, says = WRONG[wrong]
    given = {"x": X, "weight": W, **arguments}
    op = cls()
    with pytest.raises(ArgumentError) as error:
        op(**given)
    assert str(error.value) == f"{cls.__name__}: {says}"
    # Dynamo repeats what was raised while it traced.
    with pytest.raises(torch._dynamo.exc.Unsupported) as traced:
        torch.compile(op, backend="aot_eager", fullgraph=True)(**given)
    assert f"{cls.__name__}: {says}" in str(traced.value)
    with pytest.raises(ArgumentError) as broken:
        torch.compile(op, backend="aot_eager")(**given)
    assert str(broken.value) == f"{cls.__name__}: {says}"


def test_what_is_no_tensor_or_missing_is_named() -> None:
    with pytest.raises(ArgumentError) as error:
        ProjectedFwdOp()(X, 3)
    assert str(error.value) == (
        "ProjectedFwdOp: weight is of type int, but the signature needs a Tensor"
    )
    with pytest.raises(ArgumentError) as error:
        ProjectedFwdOp(biased=True)(X, W)
    assert str(error.value) == (
        "ProjectedFwdOp: bias is None, but the signature needs a Tensor where biased"
    )


def test_a_dynamic_size_that_a_rule_refuses_says_its_number() -> None:
    """Dynamo has no text for a symbol, and told of that."""
    x = torch.randn(5, 8)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="x has 5 rows; they are even"):
        torch.compile(ProjectedFwdOp(), backend="aot_eager", fullgraph=True)(x, W)


@each_composite
def test_the_checks_leave_nothing_in_a_dynamic_graph(cls: Any) -> None:
    recorder = GraphRecorder("aot_eager")
    compiled = torch.compile(cls(), backend=recorder, fullgraph=True)
    for rows in (8, 2, 6, 4):
        x = torch.randn(rows, 8)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x, W), right(x, W))
    (calls,) = recorder.calls
    assert len(calls) == 4, calls
    assert nodes(recorder) == [[NODE, NODE]]


def test_thirty_two_layers_compile_to_one_graph() -> None:
    """Whether they hold one composite or one each: their sub-ops are shared."""

    class Layer(torch.nn.Module):
        def __init__(self, op: Op) -> None:
            super().__init__()
            self.op = op
            self.weight = torch.nn.Parameter(torch.randn(8, 8), requires_grad=False)

        def forward(self, x: torch.Tensor) -> Any:
            return self.op(x, self.weight)[0]

    for make in (OuterFwdOp.shared, OuterFwdOp):
        torch._dynamo.reset()
        recorder = GraphRecorder("aot_eager")
        layers = [Layer(make()) for _ in range(32)]
        for layer in layers:
            y = torch.compile(layer, backend=recorder, fullgraph=True)(X)
            torch.testing.assert_close(y, right(X, layer.weight)[0])
        assert len(recorder.graphs) == 1


@each_composite
def test_copies_and_pickles_keep_the_shared_sub_ops(cls: Any) -> None:
    shared, own = cls.shared(target="reference"), cls(target="reference")
    for again in (copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))):
        assert again(shared) is shared
        made_again = again(own)
        assert made_again is not own
        part = "inner" if cls is OuterFwdOp else "parts"
        assert getattr(made_again, part) == getattr(own, part)
        torch.testing.assert_close(made_again(X, W), right(X, W))


def test_export_holds_the_sub_ops_by_their_descriptions() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.op = OuterFwdOp()

        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> Any:
            return self.op(x, weight)

    program = torch.export.export(Model(), (X, W))
    keys = [n.args[-1] for n in program.graph.nodes if str(n.target).startswith("tileops.")]
    assert keys == [ScaledFwdOp()._description] * 2
    torch.testing.assert_close(program.module()(X, W), right(X, W))


def test_make_fx_sees_the_sub_ops() -> None:
    graph = make_fx(OuterFwdOp(), tracing_mode="symbolic")(X, W)
    found = [str(node.target) for node in graph.graph.nodes if "tileops" in str(node.target)]
    assert found == ["tileops.composites_scaled_fwd.default"] * 2
    torch.testing.assert_close(graph(X, W), right(X, W))


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_gradients_through_a_sub_op_raise(backend: str | None) -> None:
    op: Any = OuterFwdOp()
    call = op if backend is None else torch.compile(op, backend=backend, fullgraph=True)
    y, _ = call(X.clone().requires_grad_(), W)
    with pytest.raises(GradientError, match="ScaledFwdOp"):
        y.sum().backward()


@each_composite
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_autocast_leaves_the_dtypes_of_the_entry(cls: Any, backend: str | None) -> None:
    """A product between the sub-ops came in autocast's dtype, and the result with it."""
    op: Any = cls()
    call = op if backend is None else torch.compile(op, backend=backend, fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = call(X, W)
    assert [tensor.dtype for tensor in found] == [torch.float32, torch.float32]
    torch.testing.assert_close(found, right(X, W))


def test_meta_tensors_give_shapes_and_resolve_nothing() -> None:
    op = OuterFwdOp(next(FACTORS))
    y, total = op(X.to("meta"), W.to("meta"))
    assert (y.shape, total.shape, y.device.type) == ((4, 6), (4, 8), "meta")
    assert op.serving_target is None


def test_roofline_is_the_entrys() -> None:
    """It raised where a composite has outputs."""
    assert OuterFwdOp().roofline(X, W) == (2 * 4 * 8 * 6, 4 * (32 + 48 + 24 + 32))


def test_warm_up_says_who_served_and_undoes_what_failed() -> None:
    op = OuterFwdOp(next(FACTORS), target="noting")
    report = op.warm_up(x=(([2, 4], 8), torch.float32), weight=W)
    assert [call.target for call in report.calls] == ["noting", "noting"]
    other = OuterFwdOp(next(FACTORS), target="noting")
    with pytest.raises(ArgumentError, match="they are even in number"):
        other.warm_up(x=(([2, 3], 8), torch.float32), weight=W)
    assert other.serving_target is None
    assert list(other.iter_kernels()) == []


@each_composite
def test_it_conforms_to_its_entry(cls: Any) -> None:
    assert conformance.check_class(cls.entry, cls) == []


def test_a_forward_that_takes_other_inputs_does_not_conform() -> None:
    """Composites were left out."""

    class BentFwdOp(ProjectedFwdOp, entry=ProjectedFwdOp.entry):
        def forward(self, x: Any, matrix: Any, bias: Any = None) -> Any:
            return super().forward(x, matrix, bias)

    (fault,) = conformance.check_class(BentFwdOp.entry, BentFwdOp)
    assert "forward takes the entry's inputs: (x, weight, bias=None)" in str(fault)


def test_a_result_of_another_shape_does_not_conform() -> None:
    class ShortFwdOp(ProjectedFwdOp, entry=ProjectedFwdOp.entry):
        def forward(self, x: Any, weight: Any, bias: Any = None) -> Any:
            y, total = super().forward(x, weight, bias)
            return y[:, :-1].contiguous(), total

    (fault,) = conformance.check_class(ShortFwdOp.entry, ShortFwdOp)
    assert "y float32[4, 5], contiguous" in str(fault)


def test_a_class_that_defines_the_generated_call() -> None:
    with pytest.raises(DefinitionError, match="defines __call__, which is generated"):
        type("CallsFwdOp", (Op,), {"__call__": lambda self, x: x}, entry=ProjectedFwdOp.entry)


def test_a_param_is_checked_and_fixed() -> None:
    with pytest.raises(ParamError):
        ProjectedFwdOp("two")  # type: ignore[arg-type]
    with pytest.raises(ParamError):
        ProjectedFwdOp().factor = 3.0


FIXED = (
    "{name}: {attribute} is fixed when the op is built, because equal ops share what is in it; "
    "write a composite of your own with another"
)


@pytest.mark.parametrize(("cls", "name"), [(OuterFwdOp, "inner"), (ProjectedFwdOp, "parts")])
def test_its_sub_ops_are_fixed(cls: Any, name: str) -> None:
    """Another in the place of one changed the results of every layer that shares the op."""
    op = cls.shared(next(FACTORS))
    held = getattr(op, name)
    with pytest.raises(ParamError) as error:
        setattr(op, name, None)
    assert str(error.value) == FIXED.format(name=cls.__name__, attribute=name)
    with pytest.raises(ParamError) as error:
        delattr(op, name)
    assert str(error.value) == (
        f"{cls.__name__}: {name} is fixed when the op is built and cannot be deleted"
    )
    assert getattr(op, name) is held
    op.note = op.note = "its own"
