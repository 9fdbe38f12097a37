"""GroupNorm, InstanceNorm and BatchNorm as their users see them, on the CPU.

Errors and compiled calls are in ``test_channel_norm_calls.py``, the kernels' own tests in
``test_channel_kernels.py``.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.core.testing import assert_close_to_oracle
from tileops.norm import BatchNormFwdOp, GroupNormFwdOp, InstanceNormFwdOp

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


def test_evaluation_takes_an_eps_of_zero_as_pytorch_does() -> None:
    x, (mean, var) = torch.randn(2, 3, 4), statistics(3)
    torch.testing.assert_close(
        BatchNormFwdOp(eps=0.0)(x, mean, var), functional.batch_norm(x, mean, var, eps=0.0)
    )


def test_one_value_a_channel_evaluates_as_in_pytorch() -> None:
    x, (mean, var) = torch.randn(1, 6), statistics(6)
    expected = functional.batch_norm(x, mean, var)
    torch.testing.assert_close(BatchNormFwdOp()(x, mean, var), expected)
    torch.testing.assert_close(InstanceNormFwdOp(use_input_stats=False)(x, mean, var), expected)
