"""Calls of the channel norms: what they become, and what a wrong one is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tileops.core.errors import ArgumentError, ParamError, TargetError
from tileops.core.testing import GraphRecorder
from tileops.norm import BatchNormFwdOp, GroupNormFwdOp, InstanceNormFwdOp

GROUP = "tileops::norm_group_norm_fwd"
INSTANCE = "tileops::norm_instance_norm_fwd"
BATCH = "tileops::norm_batch_norm_fwd"
STATISTICS = "_writes_running_mean_writes_running_var"
COUNTER = "_writes_num_batches_tracked"


def statistics(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count), torch.rand(count) + 0.5


def test_the_operators_say_what_they_write() -> None:
    assert GroupNormFwdOp.compile_op_names == (GROUP,)
    assert InstanceNormFwdOp.compile_op_names == (INSTANCE, INSTANCE + STATISTICS)
    assert BatchNormFwdOp.compile_op_names == (
        BATCH,
        BATCH + STATISTICS,
        BATCH + STATISTICS + COUNTER,
    )


def trained() -> dict[str, torch.Tensor]:
    mean, var = statistics(6)
    counter = torch.tensor(2)
    x = torch.randn(2, 6, 8)
    return {"x": x, "running_mean": mean, "running_var": var, "num_batches_tracked": counter}


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training_compiles_into_the_node_that_says_what_it_writes(backend: str, warm: bool) -> None:
    op = BatchNormFwdOp(training=True, momentum=None)
    given = trained()
    same = {name: value.clone() for name, value in given.items()}
    eager = BatchNormFwdOp(training=True, momentum=None)(**same)
    if warm:
        op(**{name: value.clone() for name, value in given.items()})
    recorder = GraphRecorder(backend)
    torch._dynamo.reset()
    y = torch.compile(op, backend=recorder, fullgraph=True)(**given)
    assert recorder.calls == [[BATCH + STATISTICS + COUNTER]]
    torch.testing.assert_close((y, given), (eager, same), rtol=0, atol=0)
    assert given["num_batches_tracked"].item() == 3


def test_a_branch_is_chosen_by_what_is_given() -> None:
    x, (mean, var) = torch.randn(2, 6, 8), statistics(6)
    calls: list[tuple[Any, tuple[Any, ...], str]] = [
        (GroupNormFwdOp(3), (x,), GROUP),
        (InstanceNormFwdOp(), (x,), INSTANCE),
        (InstanceNormFwdOp(), (x, mean, var), INSTANCE + STATISTICS),
        (InstanceNormFwdOp(use_input_stats=False), (x, mean, var), INSTANCE),
        (BatchNormFwdOp(training=True), (x,), BATCH),
        (BatchNormFwdOp(training=True), (x, mean, var), BATCH + STATISTICS),
        (BatchNormFwdOp(), (x, mean, var, None, None, torch.tensor(1)), BATCH),
    ]
    for op, arguments, name in calls:
        recorder = GraphRecorder("aot_eager")
        torch._dynamo.reset()
        torch.compile(op, backend=recorder, fullgraph=True)(*arguments)
        assert recorder.calls == [[name]]


def test_meta_tensors_give_metadata() -> None:
    x = torch.empty(3, 6, 4, device="meta", dtype=torch.bfloat16).transpose(0, 2)
    for op in (GroupNormFwdOp(2), InstanceNormFwdOp(), BatchNormFwdOp(training=True)):
        y = op(x)
        assert (y.shape, y.dtype, y.stride()) == ((4, 6, 3), torch.bfloat16, (18, 3, 1))
        assert op.serving_target is None


WRONG_PARAMS: dict[str, tuple[Any, str]] = {
    "no groups": (
        lambda: GroupNormFwdOp(0),
        "GroupNormFwdOp: num_groups is 0; it is at least 1",
    ),
    "groups of a fraction": (
        lambda: GroupNormFwdOp(2.5),  # type: ignore[arg-type]
        "GroupNormFwdOp: num_groups is 2.5, but the signature needs an int",
    ),
    "group eps": (
        lambda: GroupNormFwdOp(2, -1e-5),
        "GroupNormFwdOp: eps is -1e-05; it is at least 0",
    ),
    "instance eps": (
        lambda: InstanceNormFwdOp(eps=-1.0),
        "InstanceNormFwdOp: eps is -1.0; it is at least 0",
    ),
    "instance momentum": (
        lambda: InstanceNormFwdOp(momentum=None),  # type: ignore[arg-type]
        "InstanceNormFwdOp: momentum is None, but the signature needs a float",
    ),
    "batch eps": (
        lambda: BatchNormFwdOp(eps=-1.0),
        "BatchNormFwdOp: eps is -1.0; it is at least 0",
    ),
    "batch eps in training": (
        lambda: BatchNormFwdOp(training=True, eps=0.0),
        "BatchNormFwdOp: eps is 0.0; it is above 0 in training",
    ),
}


@pytest.mark.parametrize("name", WRONG_PARAMS)
def test_wrong_params(name: str) -> None:
    make, text = WRONG_PARAMS[name]
    with pytest.raises(ParamError) as error:
        make()
    assert str(error.value) == text


X = torch.randn(2, 6, 8)
SIX = torch.ones(6)
WRONG_CALLS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "no channels": (
        GroupNormFwdOp(2),
        (torch.randn(4),),
        "GroupNormFwdOp: x has shape [4], but the signature needs [N, C, *S]",
    ),
    "groups do not divide": (
        GroupNormFwdOp(4),
        (X,),
        "GroupNormFwdOp: 6 channels do not split into 4 equal groups",
    ),
    "one value in a group": (
        GroupNormFwdOp(6),
        (torch.randn(1, 6),),
        "GroupNormFwdOp: a group of one value in the whole batch has no variance",
    ),
    "weight shape": (
        GroupNormFwdOp(2),
        (X, torch.ones(5)),
        "GroupNormFwdOp: weight has shape [5], but the signature needs [C] = [6]",
    ),
    "weight dtype": (
        GroupNormFwdOp(2),
        (X, SIX.half()),
        "GroupNormFwdOp: the call has T = float32, W = float16, but the signature needs one of: "
        "T = float16, W = float16; T = float16, W = float32; T = bfloat16, W = bfloat16; "
        "T = bfloat16, W = float32; T = float32, W = float32",
    ),
    "bias dtype": (
        GroupNormFwdOp(2),
        (X.half(), SIX, SIX.half()),
        "GroupNormFwdOp: bias has dtype float16, but the signature needs W = float32",
    ),
    "one running statistic": (
        InstanceNormFwdOp(),
        (X, SIX),
        "InstanceNormFwdOp: running_mean and running_var are given both, or neither",
    ),
    "no running statistics": (
        InstanceNormFwdOp(use_input_stats=False),
        (X,),
        "InstanceNormFwdOp: running_mean is None, but the signature needs a Tensor except where "
        "use_input_stats",
    ),
    "one value in a channel": (
        InstanceNormFwdOp(),
        (torch.randn(3, 6),),
        "InstanceNormFwdOp: one value a channel has no variance; the spatial axes are []",
    ),
    "one value in a channel of three axes": (
        InstanceNormFwdOp(),
        (torch.randn(3, 6, 1, 1),),
        "InstanceNormFwdOp: one value a channel has no variance; the spatial axes are [1, 1]",
    ),
    "evaluation without statistics": (
        BatchNormFwdOp(),
        (X,),
        "BatchNormFwdOp: running_mean is None, but the signature needs a Tensor except where "
        "training",
    ),
    "one statistic in training": (
        BatchNormFwdOp(training=True),
        (X, None, SIX),
        "BatchNormFwdOp: running_mean and running_var are given both, or neither",
    ),
    "a counter of nothing": (
        BatchNormFwdOp(training=True),
        (X, None, None, None, None, torch.tensor(0)),
        "BatchNormFwdOp: num_batches_tracked counts the updates of running_mean and running_var; "
        "pass them too",
    ),
    "an average of uncounted batches": (
        BatchNormFwdOp(training=True, momentum=None),
        (X, SIX, SIX.clone()),
        "BatchNormFwdOp: momentum=None averages over all batches, and needs num_batches_tracked to "
        "count them",
    ),
    "one value in training": (
        BatchNormFwdOp(training=True),
        (torch.randn(1, 6, 1),),
        "BatchNormFwdOp: one value a channel has no variance in training; the batch is 1 and the "
        "spatial axes are [1]",
    ),
    "counter dtype": (
        BatchNormFwdOp(training=True),
        (X, SIX, SIX.clone(), None, None, torch.tensor(0, dtype=torch.int32)),
        "BatchNormFwdOp: num_batches_tracked has dtype int32, but the signature needs int64",
    ),
    "counter shape": (
        BatchNormFwdOp(training=True),
        (X, SIX, SIX.clone(), None, None, torch.zeros(1, dtype=torch.int64)),
        "BatchNormFwdOp: num_batches_tracked has shape [1], but the signature needs []",
    ),
    "half statistics of a float": (
        BatchNormFwdOp(training=True),
        (X, SIX.half(), SIX.half()),
        "BatchNormFwdOp: the call has T = float32, R = float16, but the signature needs one of: "
        "T = float16, R = float16; T = float16, R = float32; T = bfloat16, R = bfloat16; "
        "T = bfloat16, R = float32; T = float32, R = float32",
    ),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_says_what_is_wrong(name: str) -> None:
    op, arguments, text = WRONG_CALLS[name]
    before = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    with pytest.raises(ArgumentError) as error:
        op(*arguments)
    assert str(error.value) == text
    assert op.serving_target is None
    for given, kept in zip(arguments, before, strict=True):
        assert given is kept or torch.equal(given, kept)


def test_the_in_tree_kernels_do_not_serve_the_cpu() -> None:
    op = GroupNormFwdOp(2, target="tilelang")
    with pytest.raises(TargetError) as error:
        op(X)
    assert str(error.value) == (
        "GroupNormFwdOp: the target 'tilelang' serves CUDA devices, and the call's tensors are on "
        "cpu; use target='reference', which serves any device"
    )


def test_the_roofline_says_where_a_second_read_is_needed() -> None:
    """A unit that a cluster's registers cannot hold is read for its statistics first."""
    small = torch.empty(1, 32, 512, 512, device="meta", dtype=torch.float16)
    large = torch.empty(1, 32, 1024, 1024, device="meta", dtype=torch.float16)
    for op in (GroupNormFwdOp(32), InstanceNormFwdOp(), BatchNormFwdOp(training=True)):
        for x, reads in ((small, 1), (large, 2)):
            _, moved = op.roofline(x)
            assert moved == (reads + 1) * math.prod(x.shape) * 2
