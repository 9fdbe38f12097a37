"""An op that takes no tensor runs its kernel when called."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from stairs_op import ENTRY, PATH, StairsFwdOp, StairsKernel, launched, made

from tileops.core import Op, Target, register_target, tilelang_backend
from tileops.core.conformance import check_class
from tileops.core.errors import CaptureError, DefinitionError, ParamError, ResultError, TargetError
from tileops.core.planning import planning
from tileops.core.targets import unregister_target
from tileops.manifest import load_text


def test_it_has_no_boundary() -> None:
    assert StairsFwdOp.compile_op_names == ()
    assert not hasattr(torch.ops.tileops, "test_stairs_fwd")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_bare_call_is_served_by_the_reference_on_the_cpu(dtype: torch.dtype) -> None:
    op = StairsFwdOp(5, 0.5, dtype=dtype)
    torch.testing.assert_close(op(), (torch.arange(5.0) / 2).to(dtype), rtol=0, atol=0)
    assert op.serving_target == "reference"


def test_every_call_gives_memory_of_its_own_and_a_warm_one_only_launches() -> None:
    op = StairsFwdOp(4, target="counting")
    first, second = op(), op()
    torch.testing.assert_close(first, torch.tensor([100.0, 102, 104, 106]))
    torch.testing.assert_close(second, first)
    assert first.data_ptr() != second.data_ptr()
    assert len(made) == 1
    assert launched == [torch.device("cpu")] * 2
    assert op.serving_target == "counting"
    # A plan: forward is not run again.
    (plan,) = op._plans.values()
    assert plan.__code__.co_filename == "<string>"


def test_shared_copied_and_pickled() -> None:
    op = StairsFwdOp.shared(5, device="cpu")
    assert StairsFwdOp.shared(5, device=torch.device("cpu")) is op
    assert pickle.loads(pickle.dumps(op)) is op
    other = pickle.loads(pickle.dumps(StairsFwdOp(5, 3.0, dtype="float16")))
    torch.testing.assert_close(other(), (torch.arange(5.0) * 3).half())


def test_the_call_takes_nothing() -> None:
    with pytest.raises(TypeError, match=r"StairsFwdOp.__call__\(\) takes 1 positional argument"):
        StairsFwdOp(5)(torch.ones(5))


def test_a_profiler_watches_and_traces_nothing() -> None:
    op = StairsFwdOp(4, target="counting")
    with torch.profiler.profile():
        op()
    assert len(launched) == 1


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:99", "xpu:0", "mps:0", "hpu:0"])
@pytest.mark.parametrize("by_param", [True, False], ids=["param", "default"])
def test_a_device_that_is_not_here(device: str, by_param: bool) -> None:
    """With an index it was not asked for, and PyTorch failed on a stub of CUDA's bindings."""
    if getattr(torch, device.partition(":")[0], torch.cuda).is_available() and device[-2:] != "99":
        pytest.skip("needs a machine without such a device")
    with (
        pytest.raises(ParamError) as error,
        contextlib.nullcontext() if by_param else torch.device(device),
    ):
        StairsFwdOp(4, device=device if by_param else None)()
    what = f"device is {device!r}, which"
    if not by_param and device == "cuda":  # PyTorch asks the device for its index by itself
        what = "device is None, and PyTorch's default device"
    assert str(error.value).startswith(f"StairsFwdOp: {what} is not here: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("device", ["cpu:0", "meta:0"])
def test_a_device_that_there_is_one_of(device: str) -> None:
    """A result on "cpu" was refused where "cpu:0" was asked for, and the target blamed."""
    kind = device.partition(":")[0]
    op = StairsFwdOp.shared(4, device=device)
    assert op is StairsFwdOp.shared(4, device=kind)
    assert op().device == torch.device(kind)
    with torch.device(device):
        assert StairsFwdOp(4)().device == torch.device(kind)
    assert torch.compile(op, backend="eager", fullgraph=True)().device == torch.device(kind)


def test_a_wrong_result_is_refused() -> None:
    register_target(Target("short", lambda d: False, lambda *_: lambda: torch.zeros(3)))
    try:
        op = StairsFwdOp(4, target="short")
        with pytest.raises(ResultError) as error:
            op()
        assert str(error.value) == (
            "StairsFwdOp: the result 'y' of the target 'short' has shape [3], but the signature "
            "needs [4]; mend the target"
        )
        assert op.serving_target is None
    finally:
        unregister_target("short")


def test_no_elements() -> None:
    """There may be no kernel for them, and there is nothing to fill."""
    assert StairsFwdOp(0, target="tilelang")().shape == (0,)


def test_tilelang_does_not_serve_the_cpu() -> None:
    with pytest.raises(TargetError, match="the target 'tilelang' serves CUDA devices"):
        StairsFwdOp(4, target="tilelang")()


def test_its_kernels_are_planned_for_a_build_ahead() -> None:
    """``tileops build`` sees ops by their operators, and this one has none."""
    op = StairsFwdOp(6, dtype="float16", device="cuda")
    with tilelang_backend.assume_arch("sm_90a"), planning() as requests:
        y = op()
    assert (y.shape, y.device.type) == ((6,), "meta")
    (request,) = requests
    assert request.op is op
    assert request.build().kernel is StairsKernel
    assert request.build().identity == (torch.float16,)
    assert op.serving_target is None


def test_warm_up_and_roofline() -> None:
    op = StairsFwdOp(6, target="counting")
    report = op.warm_up()
    assert [call.target for call in report.calls] == ["counting"]
    assert len(launched) == 1
    assert op.roofline() == (6, 24)


def test_the_entry_is_compared_with_what_the_fake_gives() -> None:
    assert check_class(StairsFwdOp.entry, StairsFwdOp) == []
    entry = load_text(ENTRY.replace('shape = ["length"]', 'shape = ["length + 1"]'), path=PATH)
    (fault,) = check_class(entry, StairsFwdOp)
    assert "on the workload 'small' the fake gives y float32[7], contiguous" in str(fault)


def test_the_params_are_checked_at_construction() -> None:
    with pytest.raises(ParamError, match=r"^StairsFwdOp: length is -1; it is at least 0$"):
        StairsFwdOp(-1)


def test_an_entry_without_inputs_has_no_call_time_numbers() -> None:
    text = ENTRY.replace("StairsFwdOp", "CountFwdOp").replace(
        "[[signature.outputs]]", '[[signature.ints]]\nname = "first"\n\n[[signature.outputs]]'
    )

    with pytest.raises(DefinitionError) as error:

        class CountFwdOp(Op, entry=load_text(text, path=Path("count_fwd.toml"))):
            pass

    assert str(error.value) == (
        "CountFwdOp: an op without inputs has no operator, so its call takes nothing, and the "
        "entry gives it first; make params of them"
    )


def test_the_generated_methods_are_not_for_a_class_to_define() -> None:
    text = ENTRY.replace("StairsFwdOp", "OwnFwdOp")
    with pytest.raises(DefinitionError, match="defines __call__, which is generated"):

        class OwnFwdOp(Op, entry=load_text(text, path=Path("own_fwd.toml"))):
            def __call__(self) -> Any:
                return None


@pytest.mark.gpu
def test_a_first_call_is_not_captured() -> None:
    op = StairsFwdOp(4, device="cuda", target="counting")
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(CaptureError, match="has served no call on cuda:0 yet"),
        torch.cuda.graph(graph),
    ):
        op()
