"""op.warm_up: from examples or shapes, what it says, what it leaves alone, and what it refuses."""

from __future__ import annotations

import dataclasses
import re
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tileops.core import programs, store
from tileops.core.errors import ArgumentError, CaptureError, KernelBuildError
from tileops.core.serve import State


def left_with(op: Any) -> tuple[Any, ...]:
    """What an instance holds of its calls."""
    state: State = op._state
    return dict(state.targets), dict(state.kernels), state.served_by, dict(op._plans)


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("nonsense", "warm_up was given device='nonsense', which is no device here"),
        (3.5, "warm_up was given device=3.5, which is no device here"),
        (
            "meta",
            "calls on the meta device compute and build nothing; say where the calls will be, as "
            'in device="cuda"',
        ),
    ],
)
def test_a_device_that_is_none(ops: ModuleType, device: Any, reason: str) -> None:
    op = ops.AddFwdOp(target="building")
    before = left_with(op)
    with pytest.raises(ArgumentError) as error:
        op.warm_up(((3, 4), torch.float32), device=device)
    assert str(error.value) == f"AddFwdOp: {reason}"
    assert left_with(op) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_here(ops: ModuleType) -> None:
    with pytest.raises(ArgumentError) as error:
        ops.AddFwdOp(target="building").warm_up(((3, 4), torch.float32), device="cuda")
    assert str(error.value) == f"AddFwdOp: no call can be warmed on cuda: {error.value.__cause__}"
    assert error.value.__cause__ is not None


def test_from_example_tensors(ops: ModuleType) -> None:
    """Afterwards the same call is warm: it launches, and neither builds nor plans."""
    op = ops.AddFwdOp(target="building")
    x, by = torch.randn(3, 4), torch.randn(4)
    report = op.warm_up(x, by)
    assert ops.events == [("build", 4), "launch"]
    (plan,) = op._plans.values()
    assert torch.equal(op(x, by), x + by)
    assert ops.events == [("build", 4), "launch", "launch"]
    assert list(op._plans.values()) == [plan]
    assert (report.op, report.built, report.loaded) == ("AddFwdOp", 1, 0)
    (call,) = report.calls
    assert (call.arguments, call.target) == (
        "x: float32[3, 4] on cpu, by: float32[4] on cpu",
        "building",
    )
    (use,) = call.programs
    assert (use.op, use.call, use.identity) == ("AddFwdOp", "n = 4", (4, torch.float32))
    assert use.origin == "built"
    assert 0 <= use.seconds <= call.seconds == report.seconds


def test_the_report_is_for_people_and_cannot_be_changed(ops: ModuleType) -> None:
    report = ops.AddFwdOp(target="building").warm_up(torch.zeros(2, 4))
    assert re.sub(r"\d+\.\d+", "S", str(report)) == (
        "AddFwdOp: 1 calls warm in S s, 1 programs built, 0 loaded from the store\n"
        "  x: float32[2, 4] on cpu: building, S s; "
        "AddFwdOp: (4, torch.float32) built in S s"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.op = "other"


@pytest.mark.parametrize("spelling", ["pair", "meta", "tensor"])
def test_shapes_and_meta_tensors_warm_the_calls_of_real_ones(
    ops: ModuleType, spelling: str
) -> None:
    """All three spellings leave the same plan; meta tensors alone say no device."""
    op = ops.AddFwdOp(target="building")
    x = {
        "pair": ((3, 4), torch.float16),
        "meta": torch.empty(3, 4, dtype=torch.float16, device="meta"),
        "tensor": torch.ones(3, 4, dtype=torch.float16),
    }[spelling]
    report = op.warm_up(x=x, device="cpu")
    assert report.calls[0].arguments == "x: float16[3, 4] on cpu"
    (key,) = op._plans
    assert key[1:4] == (True, (3, 4), torch.float16)
    ops.events.clear()
    op(torch.ones(3, 4, dtype=torch.float16))
    assert ops.events == ["launch"]


def test_the_device_is_where_the_first_given_tensor_is(ops: ModuleType) -> None:
    """A model's weight is at hand and says it; only its activations are made up."""
    op = ops.AddFwdOp(target="building")
    report = op.warm_up(((3, 4), torch.float32), by=torch.ones(4))
    assert report.calls[0].arguments == "x: float32[3, 4] on cpu, by: float32[4] on cpu"


def test_capture_buckets_are_one_call_each_and_one_build(ops: ModuleType) -> None:
    """Rows are dynamic in the kernel; each bucket gets its plan, so a capture finds all settled."""
    op = ops.AddFwdOp(target="building")
    buckets = [1, 2, 4, *range(8, 72, 8)]
    report = op.warm_up(x=((buckets, 4), torch.float32), device="cpu")
    assert [call.arguments for call in report.calls] == [
        f"x: float32[{rows}, 4] on cpu" for rows in buckets
    ]
    assert len(op._plans) == len(buckets)
    assert [event for event in ops.events if event != "launch"] == [("build", 4)]
    assert report.built == 1


def test_lists_go_together_and_numbers_may_be_listed(ops: ModuleType) -> None:
    op = ops.LimitFwdOp()
    x = (([1, 2], range(4, 6)), torch.float32)
    report = op.warm_up(x, limit=[7, 8], device="cpu")
    assert [call.arguments for call in report.calls] == [
        "x: float32[1, 4] on cpu, limit: 7",
        "x: float32[2, 5] on cpu, limit: 8",
    ]


def test_where_a_program_came_from(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another instance, from the store, or built: a person tells why a start is slow."""
    first = ops.AddFwdOp(target="building").warm_up(torch.zeros(2, 4))
    again = ops.AddFwdOp(target="building").warm_up(torch.zeros(2, 4))
    stored = SimpleNamespace(get=lambda key, report: torch.add)
    monkeypatch.setattr(store, "open_store", lambda: stored)
    op = ops.AddFwdOp(target="building")
    loaded = op.warm_up(torch.zeros(2, 8))
    nothing = op.warm_up(torch.zeros(2, 8))
    origins = [[use.origin for use in r.calls[0].programs] for r in (first, again, loaded, nothing)]
    assert origins == [["built"], ["already there"], ["loaded from the store"], []]
    assert [(r.built, r.loaded) for r in (first, again, loaded, nothing)] == [
        (1, 0),
        (0, 0),
        (0, 1),
        (0, 0),
    ]
    assert str(nothing).endswith("nothing to build")


def test_written_tensors_are_the_caller_s_and_stay_as_they_are(ops: ModuleType) -> None:
    """A KV cache that is passed as an example must not be written by a warm-up."""
    op = ops.AccumulateFwdOp(target="building")
    x, by = torch.randn(3, 4), torch.randn(4)
    before, version = x.clone(), x._version
    op.warm_up(x, by)
    assert torch.equal(x, before)
    assert x._version == version
    ops.events.clear()
    assert op(x, by) is x
    assert ops.events == ["launch"]
    assert torch.equal(x, before + by)


@pytest.mark.parametrize("start", [0, 1])
def test_a_copy_starts_and_steps_as_its_original_does(ops: ModuleType, start: int) -> None:
    """Start and strides choose the kernel and the plan; a plain clone would warm another call."""
    op = ops.AccumulateFwdOp(target="building")
    x = torch.zeros(65)[start : start + 64].view(8, 8)
    op.warm_up(x, torch.ones(8))
    (key,) = op._plans
    assert key[1] is (start == 0)
    (kernel,) = op.iter_kernels()
    assert kernel.call.aligned is (start == 0)


def test_a_strided_copy(ops: ModuleType) -> None:
    op = ops.AccumulateFwdOp(target="building")
    op.warm_up(torch.zeros(8, 16)[:, :8], torch.ones(8))
    (key,) = op._plans
    assert key[1] is False


def test_it_makes_its_calls_without_grad_and_outside_inference_mode(ops: ModuleType) -> None:
    """A Parameter may be an example; and plans are made with tensors whose writes are counted."""
    op = ops.AddFwdOp(target="building")
    op.warm_up(torch.zeros(2, 4), torch.nn.Parameter(torch.ones(4)))
    accumulate = ops.AccumulateFwdOp(target="building")
    with torch.inference_mode():
        accumulate.warm_up(((2, 4), torch.float32), torch.ones(4), device="cpu")
        assert torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()
    ops.events.clear()
    accumulate(torch.zeros(2, 4), torch.ones(4))
    assert ops.events == ["launch"]


@pytest.mark.parametrize("where", ["build", "launch"])
@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_a_failure_leaves_the_instance_as_it_was(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    """Also where earlier sizes of the same warm-up went well; and what was warm before stays."""
    op = ops.AddFwdOp(target="building")
    op.warm_up(torch.zeros(2, 4))
    before = left_with(op)
    widths = [16, 32]

    def fail(call: Any) -> Any:
        if call.n == 32:
            setattr(ops.fault, where, error)
        return entry_for(call)

    entry_for = ops.AddKernel.entry_for
    monkeypatch.setattr(ops.AddKernel, "entry_for", fail)
    wanted = KernelBuildError if where == "build" and isinstance(error, ValueError) else type(error)
    with pytest.raises(wanted):
        op.warm_up(((2, widths), torch.float32), device="cpu")
    assert left_with(op) == before
    ops.fault.build = ops.fault.launch = None
    monkeypatch.setattr(ops.AddKernel, "entry_for", entry_for)
    assert len(op.warm_up(((2, widths), torch.float32), device="cpu").calls) == 2


def test_a_failed_first_warm_up_pins_no_target(ops: ModuleType) -> None:
    op = ops.AddFwdOp(target="building")
    with pytest.raises(ArgumentError):
        op.warm_up(((2, 4), torch.int32), device="cpu")
    assert left_with(op) == ({}, {}, None, {})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"x": ((2, 4), torch.float32)},
            "AddFwdOp: warm_up was given shapes and no device; say where the calls will be, as in "
            'device="cuda"',
        ),
        (
            {"x": (2, 4), "device": "cpu"},
            "AddFwdOp: warm_up needs for x a tensor, or its shape and dtype as in ((8, 4096), "
            "torch.float16), and got (2, 4)",
        ),
        (
            {"x": ((-1, 4), torch.float32), "device": "cpu"},
            "AddFwdOp: warm_up needs for x a tensor, or its shape and dtype as in ((8, 4096), "
            "torch.float16), and got ((-1, 4), torch.float32)",
        ),
        (
            {"x": True, "device": "cpu"},
            "AddFwdOp: warm_up needs for x a tensor, or its shape and dtype as in ((8, 4096), "
            "torch.float16), and got True",
        ),
        (
            {"x": (([1, 2], [4, 5, 6]), torch.float32), "device": "cpu"},
            "AddFwdOp: warm_up was given lists of 2 and 3 sizes; lists go together, the first size "
            "of one with the first of each other",
        ),
        (
            {"x": (([], 4), torch.float32), "device": "cpu"},
            "AddFwdOp: warm_up was given a list of no sizes, which warms nothing",
        ),
        (
            {"x": ((2, 4), torch.int32), "device": "cpu"},
            "AddFwdOp: x has dtype int32, but the signature needs T = float32 or float16",
        ),
    ],
)
def test_what_is_no_example(ops: ModuleType, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        ops.AddFwdOp(target="building").warm_up(**arguments)
    assert str(error.value) == text
    assert ops.events == []


def test_no_warm_up_inside_a_capture(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(CaptureError) as error:
        ops.AddFwdOp().warm_up(((2, 4), torch.float32), device="cuda")
    assert str(error.value) == (
        "AddFwdOp: warm_up allocates and synchronizes, which cannot be done while a CUDA graph is "
        "captured; warm up before the capture"
    )


def test_no_warm_up_inside_compiled_code(ops: ModuleType) -> None:
    """It would be traced as one more call, and warm nothing."""
    op = ops.AddFwdOp(target="building")

    def call(x: torch.Tensor) -> torch.Tensor:
        op.warm_up(x)
        return x

    with pytest.raises(torch._dynamo.exc.Unsupported) as error:
        torch.compile(call, backend="eager", fullgraph=True)(torch.zeros(2, 4))
    assert (
        "an op is warmed up inside compiled code; warm it up once outside, before the first request"
    ) in str(error.value)


def test_a_compiled_function_is_warm_too(ops: ModuleType) -> None:
    """Compiled code finds the instance by its key, and with it the plan that the warm-up left."""
    op = ops.AddFwdOp(target="building")
    op.warm_up(((3, 4), torch.float32), device="cpu")
    ops.events.clear()
    with torch.no_grad():
        compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(torch.ones(3, 4)), torch.full((3, 4), 2.0))
    assert ops.events == ["launch"]
    assert len(programs._programs) == 1
