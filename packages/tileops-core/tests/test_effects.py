"""Effect branches: what a call writes, fills, omits and returns, on every way to run it."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch._dynamo.exc import TorchRuntimeError

from tileops.core.errors import ArgumentError, GradientError
from tileops.core.testing import GraphRecorder
from tileops.core.watch import set_dispatcher_bypass

Tensors = dict[str, torch.Tensor]


class Case(NamedTuple):
    """One branch of one op, with its formula written down once more in plain PyTorch."""

    op: str
    params: dict[str, Any]
    inputs: Callable[[], Tensors]
    formula: Callable[..., Any]
    operator: str
    schema: str
    written: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    """The caller's own tensors among what the call returns; "" for an allocated one."""


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def bump(x: Any, by: Any) -> None:
    x += by


def tally(x: Any, scale: Any = None, total: Any = None) -> Any:
    y = x * (2 if scale is None else scale)
    if total is not None:
        total += y.sum(0)
    return y


def twice(x: Any, out: Any = None) -> Any:
    return x * 2 if out is None else out.copy_(x * 2)


def moments(x: Any) -> Any:
    mean, std = x.mean(-1), (x.var(-1, correction=0) + 1e-5).sqrt()
    return (x - mean[:, None]) / std[:, None], mean, 1 / std


def train(x: Any, running_mean: Any = None, count: Any = None) -> Any:
    if running_mean is not None:
        running_mean.copy_((running_mean + x.mean(0)) / 2)
    if count is not None:
        count += 1
    return x - x.mean(0)


def turn(q: Any, k: Any, out: Any = None) -> Any:
    q *= 2
    k *= 3
    y = q + k if out is None else out.copy_(q + k)
    return y, q.sum(-1)


CASES = {
    "no output": Case(
        "BumpFwdOp",
        {},
        lambda: {"x": randn(3, 8), "by": randn(8)},
        bump,
        "effects_bump_fwd_writes_x",
        "(Tensor(a!) x, Tensor by, str key) -> ()",
        ("x",),
    ),
    "param chooses: not written": Case(
        "ClipFwdOp",
        {},
        lambda: {"x": randn(3, 8)},
        lambda x: x.clamp(min=0),
        "effects_clip_fwd",
        "(Tensor x, str key) -> Tensor",
        returns=("",),
    ),
    "param chooses: alias": Case(
        "ClipFwdOp",
        {"inplace": True},
        lambda: {"x": randn(3, 8)},
        lambda x: x.clamp_(min=0),
        "effects_clip_fwd_writes_x",
        "(Tensor(a!) x, str key) -> ()",
        ("x",),
        ("x",),
    ),
    "optional absent": Case(
        "TallyFwdOp",
        {},
        lambda: {"x": randn(3, 8)},
        tally,
        "effects_tally_fwd",
        "(Tensor x, Tensor? scale, Tensor? total, str key) -> Tensor",
        returns=("",),
    ),
    "optional written": Case(
        "TallyFwdOp",
        {},
        lambda: {"x": randn(3, 8), "scale": randn(8), "total": randn(8)},
        tally,
        "effects_tally_fwd_writes_total",
        "(Tensor x, Tensor? scale, Tensor(a!) total, str key) -> Tensor",
        ("total",),
        ("",),
    ),
    "out": Case(
        "TwiceFwdOp",
        {},
        lambda: {"x": randn(3, 8), "out": randn(3, 8)},
        twice,
        "effects_twice_fwd_out",
        "(Tensor x, Tensor(a!) out, str key) -> ()",
        ("out",),
        ("out",),
    ),
    "several outputs": Case(
        "MomentsFwdOp",
        {},
        lambda: {"x": randn(3, 8)},
        moments,
        "effects_moments_fwd",
        "(Tensor x, str key) -> (Tensor, Tensor, Tensor)",
        returns=("", "", ""),
    ),
    "omitted outputs": Case(
        "MomentsFwdOp",
        {"return_stats": False},
        lambda: {"x": randn(3, 8)},
        lambda x: moments(x)[0],
        "effects_moments_fwd_without_mean_without_rstd",
        "(Tensor x, str key) -> Tensor",
        returns=("",),
    ),
    "inference leaves the statistics": Case(
        "BatchFwdOp",
        {},
        lambda: {"x": randn(3, 8), "running_mean": randn(8), "count": torch.tensor(4)},
        lambda x, running_mean, count: x - running_mean,
        "effects_batch_fwd",
        "(Tensor x, Tensor? running_mean, Tensor? count, str key) -> Tensor",
        returns=("",),
    ),
    "training writes them": Case(
        "BatchFwdOp",
        {"training": True},
        lambda: {"x": randn(3, 8), "running_mean": randn(8), "count": torch.tensor(4)},
        train,
        "effects_batch_fwd_writes_running_mean_writes_count",
        "(Tensor x, Tensor(a!) running_mean, Tensor(b!) count, str key) -> Tensor",
        ("running_mean", "count"),
        ("",),
    ),
    "training writes what is there": Case(
        "BatchFwdOp",
        {"training": True},
        lambda: {"x": randn(3, 8), "count": torch.tensor(4)},
        train,
        "effects_batch_fwd_writes_count",
        "(Tensor x, Tensor? running_mean, Tensor(a!) count, str key) -> Tensor",
        ("count",),
        ("",),
    ),
    "all suffixes": Case(
        "TurnFwdOp",
        {},
        lambda: {"q": randn(3, 8), "k": randn(3, 8), "out": randn(3, 8)},
        lambda q, k, out: turn(q, k, out)[0],
        "effects_turn_fwd_writes_q_writes_k_out_without_lse",
        "(Tensor(a!) q, Tensor(b!) k, Tensor(c!) out, str key) -> ()",
        ("q", "k", "out"),
        ("out",),
    ),
    "out before an allocated output": Case(
        "TurnFwdOp",
        {"return_lse": True},
        lambda: {"q": randn(3, 8), "k": randn(3, 8), "out": randn(3, 8)},
        turn,
        "effects_turn_fwd_writes_q_writes_k_out",
        "(Tensor(a!) q, Tensor(b!) k, Tensor(c!) out, str key) -> Tensor",
        ("q", "k", "out"),
        ("out", ""),
    ),
}
WRITING = [name for name, case in CASES.items() if case.written]


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.movedim(-1, 0).contiguous().movedim(0, -1)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    room = tensor.new_full((*tensor.shape, 2), 7)
    return room[..., 1].copy_(tensor)


def offset(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_full((tensor.numel() + 3,), 7)[3:].view(tensor.shape).copy_(tensor)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "transposed": lambda tensor: transposed(tensor) if tensor.dim() > 1 else strided(tensor),
    "strided": strided,
    "offset": offset,
}


def tuples(result: Any) -> tuple[Any, ...]:
    if result is None:
        return ()
    return result if isinstance(result, tuple) else (result,)


def check(case: Case, call: Callable[..., Any], inputs: Tensors) -> None:
    """Runs ``call`` on ``inputs``: right results, exactly the written inputs written, identity."""
    wanted = {name: tensor.clone() for name, tensor in inputs.items()}
    expected = tuples(case.formula(**wanted))
    before = {name: tensor._version for name, tensor in inputs.items()}
    layouts = {name: (t.stride(), t.data_ptr()) for name, t in inputs.items()}
    results = tuples(call(**inputs))
    assert len(results) == len(expected) == len(case.returns)
    for result, value, own in zip(results, expected, case.returns, strict=True):
        torch.testing.assert_close(result, value)
        if own:
            assert result is inputs[own]
        else:
            assert result.is_contiguous()
            assert not any(torch._C._overlaps(result, tensor) for tensor in inputs.values())
    for name, tensor in inputs.items():
        assert (tensor.stride(), tensor.data_ptr()) == layouts[name]
        if name in case.written:
            torch.testing.assert_close(tensor, wanted[name])
            assert tensor._version > before[name], f"{name}: autograd would not see the write"
        else:
            assert torch.equal(tensor, wanted[name]), f"{name} was written"
            assert tensor._version == before[name]


def make(ops: ModuleType, case: Case, target: str | None = None) -> Any:
    return getattr(ops, case.op)(**case.params, target=target)


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
    op = make(ops, case, target)
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
    op = make(ops, case, "filling")
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
    op = make(ops, case, "filling")
    with torch.inference_mode():
        for _ in range(2):
            inputs = case.inputs()
            wanted = {name: tensor.clone() for name, tensor in inputs.items()}
            expected = tuples(case.formula(**wanted))
            torch.testing.assert_close(tuples(op(**inputs)), expected)
            torch.testing.assert_close(inputs, wanted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiled(ops: ModuleType, case: Case, backend: str) -> None:
    op = make(ops, case)
    recorder = GraphRecorder(backend)
    compiled = torch.compile(op, backend=recorder, fullgraph=True)
    check(case, compiled, case.inputs())
    (calls,) = recorder.calls
    assert [name for name in calls if "getitem" not in name] == [f"tileops::{case.operator}"]
    check(case, compiled, {n: LAYOUTS["transposed"](t) for n, t in case.inputs().items()})


def everything(ops: ModuleType) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function that calls every case's op between reads, and its formula."""
    built = {name: make(ops, case) for name, case in CASES.items()}

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


def same_everywhere(call: Callable[..., Any], formula: Callable[..., Any]) -> None:
    inputs = {name: case.inputs() for name, case in CASES.items()}
    wanted = {n: {key: t.clone() for key, t in group.items()} for n, group in inputs.items()}
    expected = formula(wanted)
    torch.testing.assert_close(call(inputs), expected)
    torch.testing.assert_close(inputs, wanted)


def test_inductor_keeps_every_write_among_its_neighbours(ops: ModuleType) -> None:
    """All branches in one graph: functionalization and buffer reuse lose no write."""
    function, formula = everything(ops)
    same_everywhere(torch.compile(function, fullgraph=True), formula)


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


# -- out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (
            lambda: torch.empty(3, 9),
            "TwiceFwdOp: out has shape [3, 9], but the signature needs [*B, N] = [3, 8]",
        ),
        (
            lambda: torch.empty(0),
            "TwiceFwdOp: out has shape [0], but the signature needs [*B, N] = [3, 8]",
        ),
        (
            lambda: torch.empty(3, 8, dtype=torch.float64),
            "TwiceFwdOp: out has dtype float64, but the signature needs the output's = float32",
        ),
        (
            lambda: torch.empty(3, 8, device="meta"),
            "TwiceFwdOp: out is on meta, but the call's other tensors are on cpu; move one of them",
        ),
        (
            lambda: torch.empty(3, 8).to_sparse(),
            "TwiceFwdOp: out has the layout torch.sparse_coo, but the signature needs "
            "torch.strided; convert it, for example with out.to_dense()",
        ),
        (
            lambda: [1.0],
            "TwiceFwdOp: out is of type list, but the signature needs a Tensor or None",
        ),
        (
            lambda: torch.empty(8).expand(3, 8),
            "TwiceFwdOp: out is written, and several of its elements share one memory location "
            "(strides [0, 1]); pass a tensor that owns its elements, such as out.contiguous()",
        ),
    ],
)
def test_a_wrong_out_is_refused_and_never_resized(ops: ModuleType, out: Any, text: str) -> None:
    op = ops.TwiceFwdOp()
    x = randn(3, 8)
    for _ in range(2):
        wrong = out()
        shape = getattr(wrong, "shape", None)
        with pytest.raises(ArgumentError) as error:
            op(x, out=wrong)
        assert str(error.value) == text
        assert getattr(wrong, "shape", None) == shape
        good = torch.empty(3, 8)
        assert op(x, out=good) is good
        torch.testing.assert_close(good, x * 2)


def test_an_out_that_requires_grad_is_refused_in_grad_mode_and_filled_outside(
    ops: ModuleType,
) -> None:
    op, x = ops.TwiceFwdOp(), randn(3, 8)
    out = torch.zeros(3, 8, requires_grad=True)
    for _ in range(2):
        with pytest.raises(GradientError, match=r"^TwiceFwdOp: out is written and is a leaf that"):
            op(x, out=out)
        assert torch.equal(out, torch.zeros(3, 8))
    with torch.no_grad():
        assert op(x, out=out) is out
    torch.testing.assert_close(out.detach(), x * 2)


# -- overlaps -----------------------------------------------------------------------------------


def shares(first: str, second: str) -> str:
    return (
        f"TurnFwdOp: {first} is written and shares memory with {second}; pass tensors that do "
        f"not overlap, such as {second}.clone()"
    )


def overlapping() -> dict[str, tuple[Callable[[], Tensors], str]]:
    def rows() -> Tensors:
        base = randn(5, 8)
        return {"q": base[:3], "k": base[2:]}

    def columns() -> Tensors:
        base = randn(3, 12)
        return {"q": base[:, :8], "k": base[:, 4:]}

    def same() -> Tensors:
        x = randn(3, 8)
        return {"q": x, "k": x}

    def out() -> Tensors:
        x = randn(3, 8)
        return {"q": randn(3, 8), "k": x, "out": x.view(24).view(3, 8)}

    def crossed() -> Tensors:
        x = randn(8, 8)
        return {"q": x[:3], "k": x.t()[:3]}

    return {
        "rows": (rows, shares("q", "k")),
        "columns": (columns, shares("q", "k")),
        "same": (same, shares("q", "k")),
        "out": (out, shares("k", "out")),
        "crossed": (crossed, shares("q", "k")),
    }


OVERLAPS = overlapping()


@pytest.mark.parametrize("name", OVERLAPS)
def test_an_overlap_is_refused_cold_warm_and_at_the_fake(ops: ModuleType, name: str) -> None:
    inputs, text = OVERLAPS[name]
    op = ops.TurnFwdOp(target="filling")
    good = CASES["all suffixes"]

    def refused() -> None:
        given = inputs()
        before = {key: tensor.clone() for key, tensor in given.items()}
        with pytest.raises(ArgumentError) as error:
            op(**given)
        assert str(error.value) == text
        assert all(torch.equal(given[key], before[key]) for key in given)

    refused()
    for layout in ("plain", "transposed"):
        check(good, op, {n: LAYOUTS[layout](t) for n, t in good.inputs().items()})
    without_out = {"q": randn(3, 8), "k": randn(3, 8)}
    op(**without_out)
    refused()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    with pytest.raises(TorchRuntimeError) as error:
        compiled(**inputs())
    assert text in str(error.value)
    check(good, compiled, good.inputs())


def test_an_overlap_of_another_storage_object_is_refused(ops: ModuleType) -> None:
    """A round trip through NumPy gives a second storage over the same memory."""
    pytest.importorskip("numpy")
    x = randn(3, 8)
    op = ops.TurnFwdOp()
    for _ in range(2):
        with pytest.raises(ArgumentError) as error:
            op(x, torch.from_numpy(x.numpy())[:])
        assert str(error.value) == shares("q", "k")


@pytest.mark.parametrize(
    "split",
    [
        lambda room: (room[:3, :8], room[3:, :8]),
        lambda room: (room[:3, :8], room[:3, 8:]),
        lambda room: (room[:3, ::2], room[:3, 1::2]),
        lambda room: (room[::2, :8], room[1::2, :8]),
    ],
    ids=["rows", "columns", "interleaved columns", "interleaved rows"],
)
@pytest.mark.parametrize("backend", ["none", "aot_eager", "inductor"])
def test_views_of_one_tensor_that_share_no_element_are_written(
    ops: ModuleType, split: Any, backend: str
) -> None:
    """Query and key of a fused projection: refused where only storages were compared."""
    op = ops.TurnFwdOp(target="filling")
    function = lambda room: op(*split(room))  # noqa: E731
    if backend != "none":
        function = torch.compile(function, backend=backend, fullgraph=True)
    room = randn(6, 16)
    for _ in range(2):
        wanted = room.clone()
        expected = turn(*split(wanted))[0]
        torch.testing.assert_close(function(room), expected)
        torch.testing.assert_close(room, wanted)


def test_a_size_that_is_not_known_yet_does_not_make_views_overlap(ops: ModuleType) -> None:
    op = ops.TurnFwdOp()
    compiled = torch.compile(
        lambda room: op(room[:, :8], room[:, 8:]), backend="aot_eager", fullgraph=True
    )
    for rows in (3, 5, 9):
        room = randn(rows, 16)
        torch._dynamo.mark_dynamic(room, 0)
        wanted = room.clone()
        expected = turn(wanted[:, :8], wanted[:, 8:])[0]
        torch.testing.assert_close(compiled(room), expected)
        torch.testing.assert_close(room, wanted)


@pytest.mark.parametrize(
    ("x", "strides"),
    [
        (lambda: torch.zeros(8).expand(3, 8), "[0, 1]"),
        (lambda: torch.zeros(32).as_strided((3, 8), (1, 1)), "[1, 1]"),
        (lambda: torch.zeros(1).expand(2**31 + 8).unfold(0, 8, 2**28), "[0, 0]"),
    ],
    ids=["expanded", "sliding window", "more than 2^31 elements"],
)
def test_a_written_tensor_that_overlaps_itself_is_refused(
    ops: ModuleType, x: Any, strides: str
) -> None:
    """A sliding window was let through: copied in and back, its elements overwrote each other."""
    op = ops.BumpFwdOp()
    text = (
        f"BumpFwdOp: x is written, and several of its elements share one memory location "
        f"(strides {strides}); pass a tensor that owns its elements, such as x.contiguous()"
    )
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        with pytest.raises(ArgumentError) as error:
            op(x(), torch.ones(8))
        assert str(error.value) == text
        check(CASES["no output"], op, CASES["no output"].inputs())
    with pytest.raises(TorchRuntimeError) as error:
        compiled(x(), torch.ones(8))
    assert text in str(error.value)
    check(CASES["no output"], compiled, CASES["no output"].inputs())


# -- the rest of the entry language -------------------------------------------------------------


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
    op = ops.EveryParamFwdOp(
        8, None, False, mode="sub", kind=torch.float32, axes=3, steps=[4], weights=[1, 2.5]
    )
    assert op._key.partition("(")[2].rpartition("#")[0] == (
        "whole=8, real=None, flag=False, mode='sub', kind='float32', axes=(3,), steps=(4,), "
        "weights=(1.0, 2.5))"
    )
    x = randn(3, 8)
    y = torch.compile(op, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(y, x - 10.5)
    wide = ops.EveryParamFwdOp(8)
    torch.testing.assert_close(wide(x), x.double() + 5.5)


@pytest.mark.parametrize("backend", ["none", "aot_eager", "inductor"])
def test_autocast_changes_no_result(ops: ModuleType, backend: str) -> None:
    """Autocast is on in eager and off while AOTAutograd traces: a plain matmul differs."""
    op = ops.ProjectFwdOp()
    call = op if backend == "none" else torch.compile(op, backend=backend, fullgraph=True)
    x, w = randn(4, 8), randn(8, 3)
    expected = x @ w
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ w).dtype is torch.bfloat16
        assert call(x, w).dtype is torch.float32
        torch.testing.assert_close(call(x, w), expected)
