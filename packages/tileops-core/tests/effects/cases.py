"""The effect branches that the tests go through, and what every way to run one must do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import effect_ops as ops

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


def make(case: Case, target: str | None = None) -> Any:
    """A new instance of the case's op."""
    return getattr(ops, case.op)(**case.params, target=target)
