"""Sizes that a compiled graph leaves open: how many graphs they take, and what a wrong one says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from key_samples import CountFwdOp, PairFwdOp, ScaleFwdOp
from torch._dynamo import mark_dynamic
from torch._dynamo.decorators import mark_unbacked
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from tileops.core.errors import ArgumentError
from tileops.core.testing import GraphRecorder

BACKENDS = ["aot_eager", "inductor"]
PAIR = "tileops::keys_pair_fwd"


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        yield
    torch._dynamo.reset()


@pytest.fixture
def op() -> PairFwdOp:
    return PairFwdOp()


def pair(rows: int, columns: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, columns), torch.randn(rows, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_marked_sizes_from_two_up_take_one_graph(backend: str, op: PairFwdOp) -> None:
    """0 and 1 take one each, as PyTorch specialises them, and are right."""
    recorder = GraphRecorder(backend)
    compiled = torch.compile(op, backend=recorder, fullgraph=True)
    graphs = []
    for rows in (8, 2, 16, 3, 1, 0):
        x, z = pair(rows)
        if rows > 1:
            mark_dynamic(x, 0)
            mark_dynamic(z, 0)
        torch.testing.assert_close(compiled(x, z), op(x, z))
        graphs.append(len(recorder.graphs))
    assert graphs == [1, 1, 1, 1, 2, 3]
    assert recorder.calls == [[PAIR]] * 3


def test_automatic_sizes_from_two_up_take_two_graphs(op: PairFwdOp) -> None:
    recorder = GraphRecorder("aot_eager")
    compiled = torch.compile(op, backend=recorder, fullgraph=True)
    graphs = []
    for rows in (8, 16, 2, 33, 1, 0):
        x, z = pair(rows)
        torch.testing.assert_close(compiled(x, z), op(x, z))
        graphs.append(len(recorder.graphs))
    assert graphs == [1, 2, 2, 2, 3, 4]


def test_a_dim_of_two_inputs_is_one_size_of_the_graph(op: PairFwdOp) -> None:
    """Only one of them is marked: the graph is not made for the other's size."""
    recorder = GraphRecorder("aot_eager")
    compiled = torch.compile(lambda x, z: op(x, z), backend=recorder, fullgraph=True, dynamic=True)
    for rows in (8, 5):
        compiled(*pair(rows))
    assert len(recorder.graphs) == 1
    (graph,) = recorder.graphs
    found = [
        n.meta["example_value"].shape[0]
        for n in graph.graph.nodes
        if n.op == "placeholder" and isinstance(n.meta["example_value"], torch.Tensor)
    ]
    assert len({str(size) for size in found}) == 1


WRONG = {
    "a rule": (pair(8, 5), "PairFwdOp: x has 5 columns; their number must be even"),
    "a tied dim": (
        (torch.randn(8, 4), torch.randn(7, 3)),
        "PairFwdOp: z has shape [7, 3], but the signature needs [B, M] = [8, 3]",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_size_in_a_dynamic_graph_gets_the_op_s_words(wrong: str, op: PairFwdOp) -> None:
    """With the sizes that came, and not with a symbol's name."""
    arguments, text = WRONG[wrong]
    with pytest.raises(ArgumentError) as eager:
        op(*arguments)
    assert str(eager.value) == text
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True, dynamic=True)
    x, z = pair(8)
    expected = op(x, z)
    torch.testing.assert_close(compiled(x, z), expected)
    with pytest.raises(Exception, match="fake tensor call") as error:
        compiled(*arguments)
    assert f"RuntimeError('{text}')" in str(error.value)
    torch.testing.assert_close(compiled(x, z), expected)


def picked(op: PairFwdOp) -> Callable[..., torch.Tensor]:
    """Rows and columns whose numbers only the data say."""

    def call(
        x: torch.Tensor, z: torch.Tensor, rows: torch.Tensor, others: torch.Tensor
    ) -> torch.Tensor:
        return op(x[rows.nonzero().squeeze(1)], z[others.nonzero().squeeze(1)]) * 2

    return call


def mask(text: str) -> torch.Tensor:
    return torch.tensor([letter == "x" for letter in text])


@pytest.mark.parametrize("backend", BACKENDS)
def test_unbacked_sizes_take_one_graph_and_are_checked_when_they_are_known(
    backend: str, op: PairFwdOp
) -> None:
    """As checks of the graph they would fail with ``Eq(u1, u0)``, before the op is reached."""
    recorder = GraphRecorder(backend)
    call = picked(op)
    compiled = torch.compile(call, backend=recorder, fullgraph=True)
    x, z = pair(4)
    for rows, others in (("xx..", ".xx."), ("xxxx", "xxxx"), ("x...", "...x"), ("....", "....")):
        arguments = (x, z, mask(rows), mask(others))
        torch.testing.assert_close(compiled(*arguments), call(*arguments))
    assert len(recorder.graphs) == 1
    assert recorder.calls[0].count(PAIR) == 1
    with pytest.raises(ArgumentError) as error:
        compiled(x, z, mask("xxx."), mask("xx.."))
    assert str(error.value) == (
        "PairFwdOp: z has shape [2, 3], but the signature needs [B, M] = [3, 3]"
    )
    arguments = (x, z, mask("xx.."), mask("x..x"))
    torch.testing.assert_close(compiled(*arguments), call(*arguments))


def test_a_rule_over_an_unbacked_size(op: PairFwdOp) -> None:
    def call(x: torch.Tensor, z: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return op(x[:, columns.nonzero().squeeze(1)], z)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    x, z = pair(3)
    for columns in ("xx..", "xxxx", "...."):
        arguments = (x, z, mask(columns))
        torch.testing.assert_close(compiled(*arguments), call(*arguments))
    with pytest.raises(ArgumentError) as error:
        compiled(x, z, mask("xxx."))
    assert str(error.value) == "PairFwdOp: x has 3 columns; their number must be even"


def test_a_rule_that_no_unbacked_size_meets_fails_while_tracing(op: PairFwdOp) -> None:
    def call(x: torch.Tensor, z: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        chosen = columns.nonzero().squeeze(1)
        odd = torch.cat([chosen, chosen, chosen[:0], torch.zeros(1, dtype=torch.int64)])
        return op(x[:, odd], z)

    x, z = pair(3)
    with pytest.raises(Exception, match=r"x has .* columns; their number must be even"):
        torch.compile(call, backend="aot_eager", fullgraph=True)(x, z, mask("xx.."))


def test_marked_unbacked_sizes(op: PairFwdOp) -> None:
    """A size marked so has one graph even for 0 and 1."""
    recorder = GraphRecorder("aot_eager")
    compiled = torch.compile(op, backend=recorder, fullgraph=True)
    for rows in (8, 1, 0, 3):
        x, z = pair(rows)
        mark_unbacked(x, 0)
        mark_unbacked(z, 0)
        torch.testing.assert_close(compiled(x, z), op(x, z))
    assert len(recorder.graphs) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_given_at_the_call_changes_without_a_new_graph(backend: str) -> None:
    """Backed and unbacked, with its rule."""
    count = CountFwdOp()
    x = torch.randn(4)
    recorder = GraphRecorder(backend)
    compiled = torch.compile(lambda x, n: count(x, n) + 1, backend=recorder, fullgraph=True)
    for most in (3, 7, 2, 100):
        torch.testing.assert_close(compiled(x, most), x * most + 1)
    assert len(recorder.graphs) == 2
    with pytest.raises(Exception, match="CountFwdOp: most is -2; it is at least 0"):
        compiled(x, -2)
    unbacked = torch.compile(
        lambda x, n: count(x, n.sum().item()) + 1, backend=recorder, fullgraph=True
    )
    for most in (3, 0, 1):
        torch.testing.assert_close(unbacked(x, torch.tensor([most])), x * most + 1)
    assert len(recorder.graphs) == 3
    with pytest.raises(ArgumentError) as error:
        unbacked(x, torch.tensor([-2]))
    assert str(error.value) == "CountFwdOp: most is -2; it is at least 0"


def test_marking_a_dim_that_a_param_fixes() -> None:
    """PyTorch's own error: the mark and the op's signature contradict each other. The remedy is
    maybe_mark_dynamic, or no mark."""
    scale = ScaleFwdOp(4)
    x = torch.randn(8, 4)
    mark_dynamic(x, 1)
    with pytest.raises(ConstraintViolationError, match=r"specialized it to be a constant \(4\)"):
        torch.compile(scale, backend="aot_eager", fullgraph=True)(x)
    torch._dynamo.reset()
    y = torch.randn(8, 4)
    torch._dynamo.maybe_mark_dynamic(y, 1)
    torch.testing.assert_close(torch.compile(scale, backend="aot_eager", fullgraph=True)(y), y * 2)
