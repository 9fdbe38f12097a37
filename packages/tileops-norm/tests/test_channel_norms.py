"""GroupNorm, InstanceNorm and BatchNorm as their users see them, on the CPU.

The kernels' own tests are in ``test_channel_kernels.py``.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.errors import ArgumentError, ParamError, TargetError
from tileops.core.testing import GraphRecorder, assert_close_to_oracle
from tileops.norm import BatchNormFwdOp, GroupNormFwdOp, InstanceNormFwdOp

GROUP = "tileops::norm_group_norm_fwd"
INSTANCE = "tileops::norm_instance_norm_fwd"
BATCH = "tileops::norm_batch_norm_fwd"
STATISTICS = "_writes_running_mean_writes_running_var"
COUNTER = "_writes_num_batches_tracked"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def by_channel(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return values.double().reshape(1, -1, *(1 for _ in x.shape[2:]))


def exact(
    x: torch.Tensor,
    axes: tuple[int, ...],
    eps: float,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """The formula in float64; ``axes`` are normalized together."""
    x = x.double()
    centred = x - x.mean(axes, keepdim=True)
    y = centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt()
    y = y if weight is None else y * by_channel(x, weight)
    return y if bias is None else y + by_channel(x, bias)


def group_exact(x: torch.Tensor, groups: int, eps: float, weight: Any, bias: Any) -> torch.Tensor:
    y = exact(x.reshape(x.shape[0], groups, -1), (2,), eps).reshape(x.shape)
    y = y if weight is None else y * by_channel(x, weight)
    return y if bias is None else y + by_channel(x, bias)


def vectors(count: int, dtype: torch.dtype, number: int) -> list[torch.Tensor]:
    return [torch.randn(count).to(dtype) for _ in range(number)]


def statistics(count: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count).to(dtype), (torch.rand(count) + 0.5).to(dtype)


def space(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def close(running: torch.Tensor, expected: torch.Tensor) -> None:
    """float32 arithmetic on statistics of at most 1, then one rounding."""
    unit = torch.finfo(running.dtype).eps / 2
    torch.testing.assert_close(running.double(), expected, rtol=unit + 3e-7, atol=6.3e-6)


def test_the_operators_say_what_they_write() -> None:
    assert GroupNormFwdOp.compile_op_names == (GROUP,)
    assert InstanceNormFwdOp.compile_op_names == (INSTANCE, INSTANCE + STATISTICS)
    assert BatchNormFwdOp.compile_op_names == (
        BATCH,
        BATCH + STATISTICS,
        BATCH + STATISTICS + COUNTER,
    )


@pytest.mark.parametrize("affine", [None, "same", torch.float32])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "groups", "eps"),
    [((2, 6), 3, 1e-5), ((1, 12, 7), 2, 1e-6), ((3, 8, 5, 7), 8, 1e-3), ((2, 4, 3, 1, 5), 1, 0.0)],
)
def test_group_norm_equals_the_formula_and_pytorch(
    shape: Any, groups: int, eps: float, dtype: torch.dtype, affine: Any
) -> None:
    op = GroupNormFwdOp(groups, eps)
    x = torch.randn(shape).to(dtype)
    weight = bias = None
    if affine is not None:
        weight, bias = vectors(shape[1], dtype if affine == "same" else affine, 2)
    y = op(x, weight, bias)
    assert (y.shape, y.dtype, y.is_contiguous()) == (x.shape, dtype, True)
    assert_close_to_oracle(op, "y", y, group_exact(x, groups, eps, weight, bias))
    expected = functional.group_norm(x, groups, weight, bias, eps)
    # PyTorch rounds in more places where x is half precision.
    torch.testing.assert_close(y, expected, rtol=4 * torch.finfo(dtype).eps, atol=2e-2)


@pytest.mark.parametrize("present", [*itertools.product([False, True], repeat=2)])
def test_weight_and_bias_come_one_by_one(present: tuple[bool, bool]) -> None:
    x = torch.randn(3, 4, 9)
    weight, bias = (torch.randn(4) if there else None for there in present)
    op = GroupNormFwdOp(2)
    assert_close_to_oracle(op, "y", op(x, weight, bias), group_exact(x, 2, 1e-5, weight, bias))
    instance, batch = InstanceNormFwdOp(), BatchNormFwdOp(training=True)
    y = instance(x, weight=weight, bias=bias)
    assert_close_to_oracle(instance, "y", y, exact(x, (2,), 1e-5, weight, bias))
    y = batch(x, weight=weight, bias=bias)
    assert_close_to_oracle(batch, "y", y, exact(x, (0, 2), 1e-5, weight, bias))


@pytest.mark.parametrize("running", [None, "same", torch.float32])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 3, 2), (4, 5, 3, 7)])
def test_instance_norm_equals_the_formula_and_moves_the_statistics(
    shape: Any, dtype: torch.dtype, running: Any
) -> None:
    op = InstanceNormFwdOp(momentum=0.3, eps=1e-4)
    x = torch.randn(shape).to(dtype)
    weight, bias = vectors(shape[1], dtype, 2)
    if running is None:
        y = op(x, weight=weight, bias=bias)
        assert_close_to_oracle(op, "y", y, exact(x, space(x), 1e-4, weight, bias))
        return
    mean, var = statistics(shape[1], dtype if running == "same" else running)
    old_mean, old_var = mean.double(), var.double()
    y = op(x, mean, var, weight, bias)
    assert_close_to_oracle(op, "y", y, exact(x, space(x), 1e-4, weight, bias))
    close(mean, 0.7 * old_mean + 0.3 * x.double().mean(space(x)).mean(0))
    close(var, 0.7 * old_var + 0.3 * x.double().var(space(x)).mean(0))


def test_instance_norm_agrees_with_pytorch() -> None:
    x = torch.randn(3, 4, 6, 5)
    (mean, var), (weight, bias) = statistics(4), vectors(4, torch.float32, 2)
    theirs = mean.clone(), var.clone()
    y = InstanceNormFwdOp(momentum=0.2)(x, mean, var, weight, bias)
    expected = functional.instance_norm(x, *theirs, weight, bias, momentum=0.2)
    torch.testing.assert_close((y, mean, var), (expected, *theirs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("running", [None, "same", torch.float32])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (5, 4, 1), (3, 5, 3, 7)])
def test_batch_norm_trains_by_the_formula(shape: Any, dtype: torch.dtype, running: Any) -> None:
    op = BatchNormFwdOp(training=True, momentum=0.3, eps=1e-4)
    x = torch.randn(shape).to(dtype)
    weight, bias = vectors(shape[1], dtype, 2)
    axes = (0, *space(x))
    if running is None:
        y = op(x, None, None, weight, bias)
        assert_close_to_oracle(op, "y", y, exact(x, axes, 1e-4, weight, bias))
        return
    mean, var = statistics(shape[1], dtype if running == "same" else running)
    old_mean, old_var = mean.double(), var.double()
    counter = torch.tensor(3)
    y = op(x, mean, var, weight, bias, counter)
    assert_close_to_oracle(op, "y", y, exact(x, axes, 1e-4, weight, bias))
    close(mean, 0.7 * old_mean + 0.3 * x.double().mean(axes))
    close(var, 0.7 * old_var + 0.3 * x.double().var(axes))
    assert counter.item() == 4


@pytest.mark.parametrize("momentum", [0.1, 0.0, 1.0, None])
def test_batch_norm_trains_as_pytorchs_module_does(momentum: float | None) -> None:
    """Over several batches, with the counter, and then evaluates."""
    module = torch.nn.BatchNorm2d(5, momentum=momentum)
    with torch.no_grad():
        module.weight.normal_()
        module.bias.normal_()
    mean, var = torch.zeros(5), torch.ones(5)
    counter = torch.tensor(0)
    op = BatchNormFwdOp(training=True, momentum=momentum)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 5, 2, 4) * 2 + 1
            y = op(x, mean, var, module.weight, module.bias, counter)
            torch.testing.assert_close(y, module(x), rtol=1e-5, atol=1e-5)
        assert counter.item() == module.num_batches_tracked.item() == 4
        torch.testing.assert_close(mean, module.running_mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(var, module.running_var, rtol=1e-5, atol=1e-6)
        module.eval()
        y = BatchNormFwdOp(momentum=momentum)(x, mean, var, module.weight, module.bias, counter)
        torch.testing.assert_close(y, module(x), rtol=1e-5, atol=1e-5)
    assert counter.item() == 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [BatchNormFwdOp(eps=1e-3), InstanceNormFwdOp(False, eps=1e-3)])
def test_evaluation_writes_nothing(op: Any, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 5).to(dtype)
    (mean, var), (weight, bias) = statistics(3), vectors(3, torch.float32, 2)
    before = mean.clone(), var.clone(), mean._version, var._version
    y = op(x, mean, var, weight, bias)
    deviation = (by_channel(x, var) + 1e-3).sqrt()
    expected = (x.double() - by_channel(x, mean)) / deviation
    expected = expected * by_channel(x, weight) + by_channel(x, bias)
    assert_close_to_oracle(op, "y", y, expected)
    assert torch.equal(mean, before[0])
    assert torch.equal(var, before[1])
    assert (mean._version, var._version) == before[2:]


@pytest.mark.parametrize("offset", [1e3, -1e4])
def test_a_large_mean_cancels_nothing(offset: float) -> None:
    """A variance from squares minus the square of the mean would be wrong in its first digit."""
    x = torch.randn(4, 6, 50) + offset
    # The mean is off by some roundings of itself, a deviation being 1.
    atol = 16 * abs(offset) * 2.0**-24
    for y, expected in (
        (GroupNormFwdOp(2)(x), group_exact(x, 2, 1e-5, None, None)),
        (InstanceNormFwdOp()(x), exact(x, (2,), 1e-5)),
        (BatchNormFwdOp(training=True)(x), exact(x, (0, 2), 1e-5)),
    ):
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=atol)
    mean, var = torch.zeros(6), torch.zeros(6)
    BatchNormFwdOp(training=True, momentum=1.0)(x, mean, var)
    torch.testing.assert_close(var.double(), x.double().var((0, 2)), rtol=1e-5, atol=atol)


def test_what_is_not_finite_spreads_as_in_pytorch() -> None:
    x = torch.randn(3, 6, 8)
    x[0, 0, 1], x[1, 2, 3], x[2, 5, 0] = float("nan"), float("inf"), -float("inf")
    same = {"equal_nan": True, "rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(GroupNormFwdOp(3)(x), functional.group_norm(x, 3), **same)
    ours, theirs = [torch.zeros(6), torch.ones(6)], [torch.zeros(6), torch.ones(6)]
    y = InstanceNormFwdOp()(x, *ours)
    torch.testing.assert_close(y, functional.instance_norm(x, *theirs), **same)
    torch.testing.assert_close(ours, theirs, **same)
    ours, theirs = [torch.zeros(6), torch.ones(6)], [torch.zeros(6), torch.ones(6)]
    y = BatchNormFwdOp(training=True)(x, *ours)
    torch.testing.assert_close(y, functional.batch_norm(x, *theirs, training=True), **same)
    torch.testing.assert_close(ours, theirs, **same)


EMPTY = [(0, 4, 3), (2, 0, 3), (2, 4, 0), (0, 4), (0, 4, 0)]


@pytest.mark.parametrize("shape", EMPTY)
def test_no_elements_are_as_in_pytorch(shape: tuple[int, ...]) -> None:
    """What becomes of running statistics included: of no samples InstanceNorm makes NaN."""
    x, channels = torch.empty(shape), shape[1]
    assert GroupNormFwdOp(2)(x).shape == functional.group_norm(x, 2).shape == shape
    counter = torch.tensor(5)
    ours = statistics(channels)
    theirs = [t.clone() for t in ours]
    y = BatchNormFwdOp(training=True, momentum=None)(x, *ours, num_batches_tracked=counter)
    assert y.shape == functional.batch_norm(x, *theirs, training=True).shape == shape
    torch.testing.assert_close(list(ours), theirs, rtol=0, atol=0)
    # torch.nn.BatchNorm1d counts before it normalizes.
    assert counter.item() == 6
    if len(shape) > 2:
        y = InstanceNormFwdOp()(x, *ours)
        assert y.shape == functional.instance_norm(x, *theirs).shape == shape
        torch.testing.assert_close(list(ours), theirs, rtol=0, atol=0, equal_nan=True)
        assert bool(ours[0].isnan().any()) == (shape[0] == 0 and channels > 0)
    for op in (BatchNormFwdOp(), InstanceNormFwdOp(use_input_stats=False)):
        kept = statistics(channels)
        before = [t.clone() for t in kept]
        assert op(x, *kept).shape == shape
        torch.testing.assert_close(list(kept), before, rtol=0, atol=0)


def test_strides_do_not_matter_and_written_statistics_keep_theirs() -> None:
    x = torch.randn(4, 7, 5, 6).to(memory_format=torch.channels_last)
    plain = x.contiguous()
    for op in (GroupNormFwdOp(7), InstanceNormFwdOp(), BatchNormFwdOp(training=True)):
        y = op(x)
        assert y.is_contiguous()
        torch.testing.assert_close(y, op(plain), rtol=0, atol=0)
    wide = torch.zeros(7, 2)
    mean, var, weight = wide[:, 0], torch.ones(7), torch.randn(14)[::2]
    expected_mean, expected_var = torch.zeros(7), torch.ones(7)
    op = BatchNormFwdOp(training=True)
    y = op(x, mean, var, weight)
    expected = op(plain, expected_mean, expected_var, weight.contiguous())
    torch.testing.assert_close((y, mean, var), (expected, expected_mean, expected_var))
    assert (wide[:, 1] == 0).all()
    evaluate = BatchNormFwdOp()
    torch.testing.assert_close(evaluate(x, mean, var), evaluate(plain, mean.contiguous(), var))


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


def test_evaluation_takes_an_eps_of_zero_as_pytorch_does() -> None:
    x, (mean, var) = torch.randn(2, 3, 4), statistics(3)
    torch.testing.assert_close(
        BatchNormFwdOp(eps=0.0)(x, mean, var), functional.batch_norm(x, mean, var, eps=0.0)
    )


X = torch.randn(2, 6, 8)
SIX = torch.ones(6)
WRONG_CALLS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "no channels": (
        GroupNormFwdOp(2),
        (torch.randn(4),),
        "GroupNormFwdOp: x has shape [4], but the signature needs [N, C, *S] = [N, C, *S]",
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
        "BatchNormFwdOp: running_mean is None, but the signature needs a Tensor except where training",
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
        "BatchNormFwdOp: num_batches_tracked has shape [1], but the signature needs [] = []",
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


def test_one_value_a_channel_evaluates_as_in_pytorch() -> None:
    x, (mean, var) = torch.randn(1, 6), statistics(6)
    expected = functional.batch_norm(x, mean, var)
    torch.testing.assert_close(BatchNormFwdOp()(x, mean, var), expected)
    torch.testing.assert_close(InstanceNormFwdOp(use_input_stats=False)(x, mean, var), expected)


def test_the_in_tree_kernels_do_not_serve_the_cpu() -> None:
    op = GroupNormFwdOp(2, target="tilelang")
    with pytest.raises(TargetError) as error:
        op(X)
    assert str(error.value) == (
        "GroupNormFwdOp: the target 'tilelang' serves CUDA devices, and the call's tensors are on "
        "cpu; use target='reference', which serves any device"
    )


def test_the_roofline_says_where_a_second_read_is_needed() -> None:
    """A unit that the multiprocessors cannot hold together is read for its statistics first."""
    small = torch.empty(1, 32, 1024, 1024, device="meta", dtype=torch.float16)
    large = torch.empty(1, 32, 4096, 4096, device="meta", dtype=torch.float16)
    for op in (GroupNormFwdOp(32), InstanceNormFwdOp(), BatchNormFwdOp(training=True)):
        for x, reads in ((small, 1), (large, 2)):
            _, moved = op.roofline(x)
            assert moved == (reads + 1) * math.prod(x.shape) * 2
