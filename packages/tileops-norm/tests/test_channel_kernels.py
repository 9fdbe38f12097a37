"""The channel norms' kernels on a card: every program, at sizes that no layout was made for.

The oracle is float64, inputs are fresh, and core allocates outputs that are filled with NaN first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.errors import CaptureError
from tileops.core.testing import GraphRecorder
from tileops.norm import BatchNormFwdOp, GroupNormFwdOp, InstanceNormFwdOp, LayerNormFwdOp
from tileops.norm.channels import kernels
from tileops.norm.channels.layouts import (
    ColumnsLayout,
    ColumnsSplitLayout,
    EvenLayout,
    FlatLayout,
    HeldLayout,
    RelayLayout,
    SplitLayout,
)

pytestmark = pytest.mark.gpu

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


@dataclasses.dataclass(frozen=True)
class Case:
    """A call: what is normalized, its shape, and which tensors there are, of which dtypes."""

    mode: str
    shape: tuple[int, ...]
    dtype: torch.dtype = F16
    groups: int = 1
    affine: torch.dtype | None = None
    biased: bool = True
    running: torch.dtype | None = None
    counted: bool = False
    own: bool = True
    momentum: float | None = 0.1
    mean: float = 0.0
    offset: int = 0  # elements by which x starts past 16 bytes

    def op(self) -> Any:
        if self.mode == "group":
            return GroupNormFwdOp(self.groups)
        if self.mode == "instance":
            return InstanceNormFwdOp(self.own, self.momentum or 0.0)
        return BatchNormFwdOp(self.own, self.momentum)

    def arguments(self, device: str = "cuda") -> dict[str, Any]:
        size, channels = math.prod(self.shape), self.shape[1]
        x = torch.randn(size + self.offset, device=device).add_(self.mean).to(self.dtype)
        found: dict[str, Any] = {"x": x[self.offset :].view(self.shape)}
        if self.running is not None:
            found["running_mean"] = torch.randn(channels, device=device).to(self.running)
            found["running_var"] = (torch.rand(channels, device=device) + 0.5).to(self.running)
        if self.affine is not None:
            found["weight"] = torch.randn(channels, device=device).to(self.affine)
            if self.biased:
                found["bias"] = torch.randn(channels, device=device).to(self.affine)
        if self.counted:
            found["num_batches_tracked"] = torch.tensor(6, device=device)
        return found


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    """Fills what is allocated with NaN: what a kernel does not write shows."""
    fill: Any = torch.utils.deterministic
    before, mode = fill.fill_uninitialized_memory, torch.get_deterministic_debug_mode()
    torch.use_deterministic_algorithms(True, warn_only=True)
    fill.fill_uninitialized_memory = True
    yield
    torch.set_deterministic_debug_mode(mode)
    fill.fill_uninitialized_memory = before


def check(case: Case, calls: int = 2) -> Any:
    """Calls a new op, the second time by its plan, and compares all that it gives and writes."""
    op = case.op()
    for _ in range(calls):
        given = case.arguments()
        before = {name: value.clone() for name, value in given.items()}
        y = op(**given)
        compare(case, before, given, y)
    return op


def compare(case: Case, before: dict[str, Any], given: dict[str, Any], y: torch.Tensor) -> None:
    x = before["x"].double()
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    axes = tuple(range(2, x.ndim)) if case.mode == "instance" else (0, *range(2, x.ndim))
    if case.mode == "group":
        groups = x.reshape(x.shape[0], case.groups, -1)
        mean, var = groups.mean(-1, keepdim=True), groups.var(-1, correction=0, keepdim=True)
        expected = ((groups - mean) / (var + 1e-5).sqrt()).reshape(x.shape)
    elif case.own:
        mean, var = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
        expected = (x - mean) / (var + 1e-5).sqrt()
    else:
        mean, var = (before[n].double().reshape(shape) for n in ("running_mean", "running_var"))
        expected = (x - mean) / (var + 1e-5).sqrt()
    for name in ("weight", "bias"):
        if name in before:
            value = before[name].double().reshape(shape)
            expected = expected * value if name == "weight" else expected + value
    # As the entries' tolerances, which are for a mean that is no larger than the deviation.
    unit = torch.finfo(case.dtype).eps / 2
    larger = max(1.0, abs(case.mean))
    torch.testing.assert_close(y.double(), expected, rtol=unit * 1.002 + 4e-6, atol=6.2e-5 * larger)
    if case.counted:
        assert given["num_batches_tracked"].item() == 6 + case.own
    for name in ("weight", "bias", "x"):
        assert name not in given or torch.equal(given[name], before[name])
    if case.running is None:
        return
    if not case.own:
        assert torch.equal(given["running_mean"], before["running_mean"])
        assert torch.equal(given["running_var"], before["running_var"])
        return
    factor = 1 / 7 if case.momentum is None else case.momentum
    count = x.numel() // mean.numel()
    unbiased = var * (count / (count - 1))
    for name, new in (("running_mean", mean), ("running_var", unbiased)):
        moved = new.mean(0).flatten() if case.mode == "instance" else new.flatten()
        torch.testing.assert_close(
            given[name].double(),
            (1 - factor) * before[name].double() + factor * moved,
            rtol=torch.finfo(case.running).eps / 2 + 3e-7,
            atol=6.3e-6 * larger,
        )


TRAINS: dict[str, Any] = {"affine": F32, "running": F32, "counted": True}
AVERAGES: dict[str, Any] = {**TRAINS, "momentum": None}

#: A build takes up to ten seconds: each case has a code path of its own.
CASES = {
    "tiny-groups": Case("group", (3, 6, 5), F32, 3, F32, mean=30.0),
    "groups-across-channels": Case("group", (2, 32, 7, 7), F16, 4, F16),
    "groups-across-channels-unaligned": Case("group", (2, 32, 7, 7), F16, 4, F16, offset=1),
    "groups-of-a-block": Case("group", (9, 128, 30, 34), F16, 32, F16),
    "groups-no-bias": Case("group", (2, 64, 33, 32), BF16, 8, BF16, biased=False),
    "groups-of-a-cluster": Case("group", (2, 320, 66, 62), F16, 32, F16),
    "groups-of-a-cluster-odd": Case("group", (1, 6, 173, 171), F32, 3, F32, mean=-100.0),
    "groups-relay": Case("group", (5, 64, 344, 328), F16, 8, F16),
    "groups-split": Case("group", (1, 3, 1501, 1501), F16, 3, F16, mean=10.0),
    "groups-split-across-channels": Case("group", (1, 24, 401, 402), F16, 6, F32),
    "instances": Case("instance", (3, 5, 33), F16, affine=F16, running=F32),
    "even-groups": Case("group", (9, 128, 32, 32), F16, 32, F32, mean=30.0),
    "even-groups-no-bias": Case("group", (3, 64, 24, 32), BF16, 8, BF16, biased=False),
    "even-groups-of-a-cluster": Case("group", (2, 320, 64, 64), BF16, 32, F32, mean=-100.0),
    "even-groups-of-a-cluster-no-affine": Case("group", (1, 24, 128, 128), F32, 8),
    # Registers are short; warps of which no power of two are as many.
    "even-groups-of-short-registers": Case("group", (2, 320, 128, 128), F16, 32, F16),
    "even-groups-of-a-cluster-of-twelve-warps": Case("group", (1, 320, 192, 192), F16, 32, F16),
    "even-instances": Case("instance", (3, 70, 64, 64), F32, affine=F32, running=F32, mean=100.0),
    "even-instances-of-a-warp": Case("instance", (2, 320, 8, 8, 8), F16, affine=F16, running=F16),
    "even-instances-of-a-warp-left-over": Case(
        "instance", (3, 107, 8, 8, 8), BF16, affine=F32, running=F32, mean=30.0
    ),
    "even-instances-of-a-warp-no-affine": Case("instance", (1, 265, 512), F16, mean=-30.0),
    "even-instances-of-half-a-warp-left-over": Case("instance", (1, 67, 128), F16, affine=F16),
    "even-instances-of-two-warps-left-over": Case("instance", (1, 1057, 1024), F16, affine=F16),
    "even-instances-of-eight-lanes": Case("instance", (64, 40, 4, 4, 4), F16, affine=F32),
    "even-instances-of-a-cluster": Case("instance", (2, 9, 128, 128), BF16, running=F32, mean=10.0),
    "even-instances-of-eight": Case("instance", (900, 7, 8), BF16, running=BF16),
    # More units than run at once; several in a block, the last with fewer.
    "even-groups-of-waves": Case("group", (67, 128, 32, 32), BF16, 32, F32, mean=30.0),
    "even-groups-of-a-cluster-of-waves": Case("group", (5, 320, 128, 128), F16, 32, F16),
    "even-groups-of-the-most-registers": Case("group", (3, 16, 512, 512), F16, 8, F32, mean=-30.0),
    "even-instances-of-waves": Case("instance", (9, 250, 64, 64), F32, running=F32, mean=100.0),
    "even-instances-of-a-warp-of-waves": Case(
        "instance", (31, 321, 512), F16, affine=F16, running=F32
    ),
    "even-instances-of-a-warp-of-filled-waves": Case("instance", (31, 320, 512), BF16, mean=3.0),
    "instances-of-a-cluster": Case("instance", (2, 9, 128, 130), F32, affine=F32, running=F32),
    "instances-relay": Case("instance", (3, 7, 904, 901), F32, affine=F32, running=F32),
    "instances-split": Case("instance", (1, 5, 3, 701, 703), F16, affine=F32, running=F32),
    "batch": Case("batch", (7, 5, 40), BF16, **TRAINS),
    "batch-averages": Case("batch", (7, 5, 12, 12), F32, **AVERAGES),
    "batch-of-a-cluster": Case("batch", (64, 50, 28, 28), F16, **TRAINS),
    "batch-of-a-cluster-averages": Case("batch", (40, 9, 56, 56), F16, **AVERAGES),
    "batch-relay": Case("batch", (64, 41, 116, 120), BF16, **TRAINS, mean=3.0),
    "batch-relay-averages": Case("batch", (70, 30, 128, 127), F16, **AVERAGES),
    "batch-split": Case("batch", (61, 9, 100, 100), F16, **TRAINS, mean=3.0),
    "batch-split-averages": Case("batch", (300, 3, 71, 71), F16, **AVERAGES),
    "batch-columns": Case("batch", (64, 200, 7, 7), F16, **TRAINS),
    "batch-columns-averages": Case("batch", (50, 24, 5, 5), F32, **AVERAGES),
    "batch-columns-no-space": Case("batch", (5001, 1000), BF16, **TRAINS, mean=20.0),
    "batch-columns-split": Case("batch", (30_001, 104), F16, **TRAINS),
    "batch-columns-split-averages": Case("batch", (20_001, 24, 3, 3), F16, **AVERAGES),
    "running": Case("batch", (7, 5, 12, 12), F16, **TRAINS, own=False),
    "running-unaligned": Case("batch", (7, 5, 12, 12), F16, **TRAINS, own=False, offset=3),
    "running-columns": Case("batch", (33, 24, 7, 7), BF16, **TRAINS, own=False),
    "running-no-space": Case("instance", (33, 1000), F32, running=F32, own=False),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_the_float64_formula(name: str) -> None:
    op = check(CASES[name])
    for use in op.iter_kernels():
        assert (use.call.layout.program == "even") == name.startswith("even")


def test_even_and_what_is_not_so_take_turns() -> None:
    """One op, called with what starts past 16 bytes, and with a batch of no samples."""
    case = CASES["even-instances-of-a-warp"]
    op = case.op()
    for offset in (0, 1, 0, 4):
        moved = dataclasses.replace(case, offset=offset)
        given = moved.arguments()
        before = {name: value.clone() for name, value in given.items()}
        compare(moved, before, given, op(**given))
    found = {use.call.layout.program for use in op.iter_kernels()}
    assert found == {"even", "held"}
    x = torch.empty(0, 320, 8, 8, 8, device="cuda", dtype=F16)
    assert op(x, None, None, given["weight"], given["bias"]).shape == x.shape
    given = case.arguments()
    before = {name: value.clone() for name, value in given.items()}
    compare(case, before, given, op(**given))


@pytest.mark.parametrize("captured", [False, True])
def test_clusters_and_others_wait_for_what_came_before(captured: bool) -> None:
    """Clusters, which may be launched early, next to each other and to others, behind what wrote
    their input and before what overwrites it: in a row as one by one."""
    torch.utils.deterministic.fill_uninitialized_memory = False  # each kernel next to the last
    start = torch.randn(1, 640, 64, 32, device="cuda").half()
    weight = torch.rand(40960, device="cuda").half() + 0.5
    instance, group, few = InstanceNormFwdOp(), GroupNormFwdOp(32), GroupNormFwdOp(20)
    layer = LayerNormFwdOp(40960)
    steps = [
        *(instance, instance, group, instance, few, group, group, instance),
        lambda x: layer(x.view(32, 40960), weight).view(x.shape),
        # Of 20 x 62 x 32 elements no threads hold equal parts: another program, in clusters.
        lambda x: torch.cat((group(x[:, :, :62].contiguous()), x[:, :, 62:]), 2),
    ]

    def chain(wait: bool) -> torch.Tensor:
        x = start.clone()
        for _ in range(6):
            for step in steps:
                y = step(x)
                if wait:
                    torch.cuda.synchronize()
                torch.add(y, 0.25, out=x)
                x = step(x)
                if wait:
                    torch.cuda.synchronize()
        return x

    alone = chain(True)
    assert alone.isfinite().all()
    uses = {use.call.layout for op in (instance, group) for use in op.iter_kernels()}
    assert {use.cluster > 1 for use in uses if use.program == "even"} == {True, False}
    if not captured:
        for _ in range(20):
            assert torch.equal(chain(False), alone)
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = chain(False)
    for _ in range(20):
        y.fill_(math.nan)
        graph.replay()
        assert torch.equal(y, alone)


FORCED: dict[str, tuple[Case, Any]] = {
    "held-across-channels": (
        Case("group", (3, 12, 245), F16, 3, F32),
        HeldLayout(2, 32, 1, 16, 4, straddle=True, wide=False),
    ),
    "held-wide": (
        Case("group", (3, 8, 500)),
        HeldLayout(1, 256, 1, 2, 8, straddle=False, wide=True),
    ),
    "even-of-a-warp": (
        Case("instance", (5, 33, 512), F16, affine=F32, running=F32, mean=100.0),
        EvenLayout(1, 32, 1, 2, 8),
    ),
    # Units that share a block, the last one with fewer; lanes of several units in a warp.
    "even-of-lanes": (
        Case("instance", (5, 33, 64), BF16, affine=BF16, running=BF16),
        EvenLayout(1, 8, 16, 1, 8),
    ),
    "even-of-two-warps": (
        Case("group", (3, 14, 8, 128), F32, 7, F32, biased=False, mean=-30.0),
        EvenLayout(1, 64, 2, 8, 4),
    ),
    "even-of-a-block": (
        Case("group", (9, 128, 32, 32), F16, 32, F32),
        EvenLayout(1, 256, 1, 2, 8, touch=True),
    ),
    # Warps of which no power of two are as many, and more channels than a warp has lanes.
    "even-of-a-cluster": (
        Case("group", (2, 160, 20, 32), F16, 4, F16, mean=30.0),
        EvenLayout(4, 160, 1, 5, 8, blocks=2),
    ),
    "even-of-a-cluster-that-touches": (
        Case("group", (3, 80, 64, 64), BF16, 8, BF16),
        EvenLayout(8, 64, 1, 10, 8, touch=True),
    ),
    "even-instances-of-a-cluster": (
        Case("instance", (3, 7, 128, 128), F16, running=F32),
        EvenLayout(2, 128, 1, 8, 8),
    ),
    "relay-of-one-unit": (
        Case("group", (1, 3, 1501, 8), F32, 1, F32, biased=False, mean=100.0),
        RelayLayout(256, 4, 4, 8),
    ),
    "relay-of-many-units": (
        Case("instance", (90, 70, 152), BF16, running=BF16),
        RelayLayout(256, 8, 4, 8),
    ),
    # 401 parts: more than a block has threads, to be merged by some of them twice.
    "relay-of-many-parts": (
        Case("group", (2, 3, 2188, 1000), F16, 1),
        RelayLayout(256, 8, 4, 8),
    ),
    # Segments that end inside an access of a warp, and parts that end inside a segment.
    "relay-of-a-batch": (
        Case("batch", (1037, 7, 24), F16, **TRAINS, mean=-30.0),
        RelayLayout(256, 8, 4, 8),
    ),
    "split-of-large-blocks": (
        Case("group", (3, 16, 35, 40), F16, 2, F32, mean=100.0),
        SplitLayout(512, 8, 4, straddle=False, wide=False),
    ),
    "split-wide": (
        Case("instance", (3, 5, 35, 40)),
        SplitLayout(512, 8, 4, straddle=False, wide=True),
    ),
    "split-wide-batch": (
        Case("batch", (30, 4, 2000), running=F32),
        SplitLayout(256, 8, 4, straddle=False, wide=True),
    ),
    "columns-split": (
        Case("batch", (300, 7, 25), F32, **TRAINS),
        ColumnsSplitLayout(256, 1, 4),
    ),
    # Tiles of 49 accesses, more than a warp has threads and no whole warps, in clusters.
    "columns-of-clusters": (
        Case("batch", (64, 2048, 7, 7), **TRAINS),
        ColumnsLayout(2, 128, 8, 16),
    ),
    "columns-of-larger-clusters": (
        Case("batch", (61, 2048, 7, 7), **TRAINS),
        ColumnsLayout(4, 128, 8, 8),
    ),
    "flat-wide": (
        Case("batch", (30, 24, 10, 12), running=F32, own=False),
        FlatLayout(256, 8, 1, wide=True),
    ),
}


@pytest.mark.parametrize("name", FORCED)
def test_is_right_where_another_is_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold may move: a program is right at sizes that it does not serve today."""
    case, layout = FORCED[name]
    monkeypatch.setattr(kernels, "choose_layout", lambda *_: layout)
    op = check(case)
    assert [use.call.layout for use in op.iter_kernels()] == [layout]


#: One case for each program.
EACH = ["groups-of-a-block", "groups-of-a-cluster", "groups-split", "instances-split"]
EACH += ["even-groups", "even-instances-of-a-cluster", "even-instances-of-eight"]
EACH += ["even-groups-of-a-cluster-of-waves", "even-instances-of-a-warp-of-waves"]
EACH += ["groups-relay", "instances-relay", "batch-relay", "batch-relay-averages"]
EACH += ["batch-columns", "batch-columns-split", "batch-split-averages", "running"]


@pytest.mark.parametrize("name", EACH)
def test_a_capture_replays_with_new_values(name: str) -> None:
    """The workspace is of the graph's own pool, and the counter goes on at each replay."""
    case = CASES[name]
    op, given = case.op(), case.arguments()
    op(**case.arguments())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = op(**given)
    for _ in range(2):
        fresh = case.arguments()
        for at, value in fresh.items():
            given[at].copy_(value)
        before = {at: value.clone() for at, value in given.items()}
        y.fill_(math.nan)
        graph.replay()
        compare(case, before, given, y)


def test_a_cold_call_in_a_capture_is_refused() -> None:
    op, x = GroupNormFwdOp(5), torch.randn(2, 5, 19, device="cuda")
    with (
        pytest.raises(CaptureError, match="has served no call on cuda:0 yet"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        op(x)


@pytest.mark.parametrize("name", EACH[1:-1])
def test_two_streams_share_no_workspace(name: str) -> None:
    case = CASES[name]
    op, streams = case.op(), [torch.cuda.Stream() for _ in range(2)]
    op(**case.arguments())
    given = [case.arguments() for _ in range(6)]
    before = [{at: value.clone() for at, value in one.items()} for one in given]
    torch.cuda.synchronize()
    results = []
    for n, one in enumerate(given):
        with torch.cuda.stream(streams[n % 2]):
            results.append(op(**one))
    torch.cuda.synchronize()
    for one, old, y in zip(given, before, results, strict=True):
        compare(case, old, one, y)


#: And the programs' parts that a value which is not finite could leave.
SPREAD = [*EACH, "batch", "batch-columns-averages", "tiny-groups"]
SPREAD += ["even-groups-of-a-cluster", "even-instances", "even-instances-of-a-warp"]


@pytest.mark.parametrize("name", SPREAD)
def test_what_is_not_finite_spreads_as_in_pytorch(name: str) -> None:
    """It poisons its own statistics and no others."""
    case = CASES[name]
    given = case.arguments()
    x = given["x"]
    flat = x.view(-1)
    flat[x[0, 0].numel() // 2] = math.nan
    flat[-1] = -math.inf
    before = {at: value.clone() for at, value in given.items()}
    y = case.op()(**given)
    theirs = {at: value.float() for at, value in before.items() if at != "num_batches_tracked"}
    if case.mode == "group":
        expected = functional.group_norm(_names(theirs)["input"], case.groups, *_affine(theirs))
    else:
        norm: Any = functional.batch_norm if case.mode == "batch" else functional.instance_norm
        own = {"training" if case.mode == "batch" else "use_input_stats": case.own}
        momentum = 1 / 7 if case.momentum is None else case.momentum
        expected = norm(**_names(theirs), **own, momentum=momentum)
    assert y.isnan().any()
    # Where values are right to the last bit is tested elsewhere; here, where they are NaN.
    close = {"rtol": 2 * torch.finfo(case.dtype).eps, "atol": 1e-3, "equal_nan": True}
    torch.testing.assert_close(y.float(), expected, **close)
    for at in ("running_mean", "running_var"):
        if at in given:
            close["rtol"] = 2 * torch.finfo(given[at].dtype).eps
            mine, right = given[at].float(), theirs[at]
            # An infinity makes a mean infinite or, merged with the next part's, NaN: that is the
            # order's doing, in PyTorch's kernels too.
            torch.testing.assert_close(mine.isfinite(), right.isfinite(), rtol=0, atol=0)
            torch.testing.assert_close(
                mine.where(mine.isfinite(), 0), right.where(right.isfinite(), 0), **close
            )


def _affine(given: dict[str, Any]) -> tuple[Any, Any]:
    return given.get("weight"), given.get("bias")


def _names(given: dict[str, Any]) -> dict[str, Any]:
    return {"input" if name == "x" else name: value for name, value in given.items()}


def test_no_elements() -> None:
    counter = torch.tensor(3, device="cuda")
    mean, var = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    op = BatchNormFwdOp(training=True, momentum=None)
    for _ in range(2):
        y = op(torch.empty(0, 4, 5, device="cuda"), mean, var, None, None, counter)
        assert y.shape == (0, 4, 5)
    assert (counter.item(), mean.sum().item(), var.sum().item()) == (5, 0.0, 4.0)
    InstanceNormFwdOp()(torch.empty(2, 4, 0, device="cuda"), mean, var)
    assert (mean.sum().item(), var.sum().item()) == (0.0, 4.0)
    InstanceNormFwdOp()(torch.empty(0, 4, 5, device="cuda"), mean, var)
    assert mean.isnan().all()
    assert var.isnan().all()


def test_strides_and_statistics_that_are_not_contiguous() -> None:
    case = CASES["batch-columns"]
    given, wide = case.arguments(), torch.zeros(200, 2, device="cuda")
    given |= {"running_mean": torch.zeros(200, device="cuda")}
    strided = {at: value.clone() for at, value in given.items()} | {"running_mean": wide[:, 0]}
    op = case.op()
    for _ in range(2):
        given["x"] = case.arguments()["x"]
        strided["x"] = given["x"].to(memory_format=torch.channels_last)
        y = op(**strided)
        assert y.is_contiguous()
        torch.testing.assert_close(y, op(**given), rtol=0, atol=0)
        for at in ("running_mean", "running_var", "num_batches_tracked"):
            assert torch.equal(strided[at], given[at])
    assert (wide[:, 1] == 0).all()


def test_compiles_cold() -> None:
    case = CASES["batch-of-a-cluster"]
    op, given = case.op(), case.arguments()
    before = {name: value.clone() for name, value in given.items()}
    recorder = GraphRecorder("inductor")
    torch._dynamo.reset()
    y = torch.compile(op, backend=recorder, fullgraph=True)(**given)
    assert recorder.calls == [[type(op).compile_op_names[2]]]
    assert op.serving_target == "tilelang"
    compare(case, before, given, y)


LARGE = {
    "even": Case("group", (2**31 // 4096 - 1, 8, 512)),
    "held": Case("group", (2**31 // 4096 + 3, 8, 512)),
    "split": Case("instance", (1, 1, 2**31 + 8)),
    "batch": Case("batch", (2**31 // 2**18 + 1, 64, 4096), running=F32),
    "flat": Case("batch", (2**31 // 4096 + 3, 8, 512), running=F32, own=False),
}


@pytest.mark.parametrize("name", LARGE)
def test_offsets_pass_two_to_the_31(name: str) -> None:
    """More than 2**31 elements, or hardly fewer: the last are read and written where they are."""
    case = LARGE[name]
    x = torch.empty(case.shape, device="cuda", dtype=F16).normal_()
    given: dict[str, Any] = {"x": x}
    if case.running is not None:
        given["running_mean"] = torch.randn(case.shape[1], device="cuda")
        given["running_var"] = torch.rand(case.shape[1], device="cuda") + 0.5
    kept = {at: value.clone() for at, value in given.items() if at != "x"}
    y = case.op()(**given)
    assert not y.isnan().any()
    ends = [x.view(-1)[:4096].double(), x.view(-1)[-4096:].double()]
    if name == "flat":
        mean, var = (kept[at].double()[:, None] for at in ("running_mean", "running_var"))
        expected = [(end.view(8, 512) - mean) / (var + 1e-5).sqrt() for end in ends]
    elif name in ("even", "held"):
        expected = [(end - end.mean()) / (end.var(correction=0) + 1e-5).sqrt() for end in ends]
    else:
        # So many normal numbers have the moments 0 and 1 as closely as float16 has to know.
        expected = ends
    for mine, right in zip((y.view(-1)[:4096], y.view(-1)[-4096:]), expected, strict=True):
        torch.testing.assert_close(mine.double(), right.view(-1), rtol=3e-3, atol=3e-3)
