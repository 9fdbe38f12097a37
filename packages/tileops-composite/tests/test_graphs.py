"""What compilers see of the composites: their sub-ops' nodes, by whoever serves them."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from calls import CASES, SMALL, drawn, results
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.composite import TransformerBlockFwdOp
from tileops.composite.attention import attend
from tileops.core import Op, Target, register_target
from tileops.core.errors import GradientError
from tileops.core.targets import REFERENCE, unregister_target
from tileops.core.testing import GraphRecorder

FRESH = itertools.count(1)

each_case = pytest.mark.parametrize("name", SMALL)


def nodes(recorder: GraphRecorder) -> list[list[str]]:
    return [[name for name in calls if name.startswith("tileops")] for calls in recorder.calls]


class Planted:
    """A target that computes as the reference does, and notes whose calls it served."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.claims = False

    def kernel(self, op: Op, interface: str, call: Any) -> Callable[..., Any]:
        plain = REFERENCE.kernel(op, interface, call)

        def noted(*inputs: Any) -> Any:
            self.served.append(type(op).__name__)
            return plain(*inputs)

        return noted


@pytest.fixture
def target() -> Iterator[Planted]:
    planted = Planted()
    register_target(Target("planted", lambda device: planted.claims, planted.kernel))
    yield planted
    unregister_target("planted")


@each_case
def test_the_graph_holds_the_sub_ops_and_no_other(name: str) -> None:
    case = CASES[SMALL[name]]
    recorder = GraphRecorder("aot_eager")
    torch.compile(case.make(), backend=recorder, fullgraph=True)(**drawn(case))
    assert case.nodes is not None
    assert nodes(recorder) == [list(case.nodes)]


@each_case
@pytest.mark.parametrize("chosen", ["reference", "planted", "detected"])
def test_it_compiles_cold_by_any_target(name: str, chosen: str, target: Planted) -> None:
    """Explicit, from elsewhere, and one that claims the device: the same graph and results."""
    case, arguments = CASES[SMALL[name]], drawn(CASES[SMALL[name]])
    # Params of its own: shared sub-ops keep who served them first.
    own = {"eps": next(FRESH) / 1e6, "base": 1e4 + next(FRESH)}
    params = {**case.params, **{k: v for k, v in own.items() if hasattr(case.make(), k)}}
    expected = results(case.op(**params, target="reference")(**arguments))
    target.claims = chosen == "detected"
    op: Any = case.op(**params, target=None if target.claims else chosen)
    recorder = GraphRecorder("aot_eager")
    found = results(torch.compile(op, backend=recorder, fullgraph=True)(**arguments))
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=1e-3)
    assert case.nodes is not None
    assert nodes(recorder) == [list(case.nodes)]
    assert op.serving_target == ("reference" if chosen == "reference" else "planted")
    assert len(target.served) == (0 if chosen == "reference" else len(case.nodes))


class Layer(torch.nn.Module):
    """A model's layer: it holds the weights, and the op that it was given."""

    def __init__(self, op: Op, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.op = op
        self.weights = torch.nn.ParameterDict(
            {
                name: torch.nn.Parameter(torch.randn_like(value) / 8, requires_grad=False)
                for name, value in arguments.items()
                if name.endswith(("_weight", "_bias"))
            }
        )

    def forward(self, **tensors: torch.Tensor) -> Any:
        return self.op(**tensors, **self.weights)


@each_case
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_thirty_two_layers_compile_once_when_each_is_compiled(name: str, shared: bool) -> None:
    """By ``shared()``, and of composites of their own, whose sub-ops are shared."""
    case, arguments = CASES[SMALL[name]], drawn(CASES[SMALL[name]])
    tensors = {k: v for k, v in arguments.items() if not k.endswith(("_weight", "_bias"))}
    recorder = GraphRecorder("aot_eager")
    with torch.no_grad():
        for _ in range(32):
            op: Any = case.op.shared(**case.params) if shared else case.op(**case.params)
            layer = Layer(op, arguments)
            found = torch.compile(layer, backend=recorder, fullgraph=True)(**tensors)
            torch.testing.assert_close(found, layer(**tensors), rtol=2e-2, atol=2e-2)
    assert len(recorder.graphs) == 1


@each_case
@pytest.mark.parametrize("dim", ["B", "S"])
def test_a_marked_size_takes_one_graph(name: str, dim: str) -> None:
    case = CASES[SMALL[name]]
    op, recorder = case.make(), GraphRecorder("aot_eager")
    compiled = torch.compile(op, backend=recorder, fullgraph=True)
    for size in (8, 2, 5):
        arguments = drawn(case)
        for key, value in arguments.items():
            axis = 0 if dim == "B" else 1
            if key == "position_ids":
                axis -= 2 - value.dim()
            of_rows = key in ("x", "residual", "position_ids") or (key == "c" and dim == "B")
            if of_rows and axis >= 0:
                index = torch.arange(size) % value.shape[axis]
                arguments[key] = value.index_select(axis, index)
                torch._dynamo.mark_dynamic(arguments[key], axis)
        found = results(compiled(**arguments))
        torch.testing.assert_close(found, results(op(**arguments)), rtol=2e-2, atol=2e-2)
    assert len(recorder.graphs) == 1
    assert all(not call.startswith("<built-in function is_") for call in recorder.calls[0])


@each_case
def test_sizes_that_are_all_dynamic_take_one_graph(name: str) -> None:
    """With ``dynamic=True`` head counts are symbols too, which no flag of attention may be."""
    case = CASES[SMALL[name]]
    op, recorder = case.make(), GraphRecorder("aot_eager")
    compiled = torch.compile(op, backend=recorder, fullgraph=True, dynamic=True)
    for size in (19, 2, 8):  # the first is no other size, which one symbol would stand for
        arguments = drawn(case)
        for key in ("x", "residual", "c", "position_ids"):
            if key in arguments and (key != "position_ids" or arguments[key].dim() == 2):
                index = torch.arange(size) % arguments[key].shape[0]
                arguments[key] = arguments[key].index_select(0, index)
        found = results(compiled(**arguments))
        torch.testing.assert_close(found, results(op(**arguments)), rtol=2e-2, atol=2e-2)
    assert len(recorder.graphs) == 1


def test_attention_compiles_where_nothing_is_known_of_a_size() -> None:
    q = torch.randn(3, 5, 2, 16)
    expected = attend(q, q, q, causal=True, grouped=False)
    torch._dynamo.decorators.mark_unbacked(q, 0)
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, q, q, causal=True, grouped=False), expected)


@pytest.mark.parametrize("shape", [(0, 5, 2, 16), (3, 0, 2, 16)])
def test_attention_of_nothing_is_nothing(shape: tuple[int, ...]) -> None:
    q = torch.randn(shape, requires_grad=True)
    y = attend(q, q, q, causal=True, grouped=False)
    assert y.shape == (*shape[:2], 32)
    y.sum().backward()
    assert q.grad is not None


@each_case
def test_copies_and_pickles_share_the_sub_ops(name: str) -> None:
    case, arguments = CASES[SMALL[name]], drawn(CASES[SMALL[name]])
    own, shared = case.make(target="reference"), case.op.shared(**case.params, target="reference")
    recorder = GraphRecorder("aot_eager")
    call = torch.compile(lambda op, given: op(**given), backend=recorder, fullgraph=True)
    expected = results(call(own, arguments))
    for again in (copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))):
        assert again(shared) is shared
        made = again(own)
        assert made is not own
        assert repr(made) == repr(own)
        assert all(map(torch.equal, results(call(made, arguments)), expected))
    assert len(recorder.graphs) == 1


class Program(torch.nn.Module):
    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op

    def forward(self, arguments: dict[str, torch.Tensor]) -> Any:
        return self.op(**arguments)


@each_case
def test_an_exported_program_gives_the_same(name: str) -> None:
    case, arguments = CASES[SMALL[name]], drawn(CASES[SMALL[name]])
    op = case.make()
    with torch.no_grad():
        program = torch.export.export(Program(op), (arguments,))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    found = results(torch.export.load(file).module()(arguments))
    torch.testing.assert_close(found, results(op(**arguments)), rtol=2e-2, atol=1e-3)


@each_case
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_gradients_of_activations_raise(name: str, backend: str | None) -> None:
    """They are never silently zero or partial."""
    case, arguments = CASES[SMALL[name]], drawn(CASES[SMALL[name]])
    op: Any = case.make()
    call = op if backend is None else torch.compile(op, backend=backend, fullgraph=True)
    arguments["x"].requires_grad_()
    found = results(call(**arguments))
    with pytest.raises(GradientError, match="FwdOp serves inference and has no derivative"):
        sum(value.float().sum() for value in found).backward()


def test_a_weight_behind_the_last_sub_op_has_its_true_gradient() -> None:
    """PyTorch's own: what is between the nodes is plain."""
    case = CASES["AdaLNZeroBlockFwdOp-float32-5-heads"]
    arguments = drawn(case)
    weight = arguments["fc2_weight"].requires_grad_()
    case.make()(**arguments).square().sum().backward()
    with torch.no_grad():
        step = torch.randn_like(weight)
        ends = []
        for sign in (1, -1):
            moved = {k: v.detach().double() for k, v in arguments.items()}
            moved["fc2_weight"] = moved["fc2_weight"] + sign * 1e-4 * step.double()
            ends.append(case.oracle(case.make(), **moved).square().sum())
        slope = (ends[0] - ends[1]) / 2e-4
    assert weight.grad is not None
    torch.testing.assert_close((weight.grad * step).sum().double(), slope, rtol=1e-3, atol=1e-3)


def test_inductor_gives_what_eager_gives() -> None:
    case = CASES["TransformerBlockFwdOp-float32-qk-norm-positions"]
    op: TransformerBlockFwdOp = case.make()  # type: ignore[assignment]
    arguments = drawn(case)
    with torch.no_grad():
        found = torch.compile(op, fullgraph=True)(**arguments)
        torch.testing.assert_close(found, op(**arguments), rtol=1e-5, atol=1e-5)


@each_case
def test_fake_tensors_of_a_card_that_pytorch_was_built_without(name: str) -> None:
    """PyTorch cannot index them."""
    case = CASES[SMALL[name]]
    given, op = drawn(case), case.make()
    with FakeTensorMode():
        fakes = {
            each: torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda:0")
            for each, tensor in given.items()
        }
        found = results(op(**fakes))
    wanted = results(op(**given))
    assert [y.shape for y in found] == [y.shape for y in wanted]
    assert {y.device for y in found} == {torch.device("cuda:0")}
