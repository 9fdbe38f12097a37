"""Faults, each in an op or in the target that serves it: what every check must catch by name."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch._functorch import config as functorch_config

from tileops.core import Op, Target, fills, register_target, serve
from tileops.core.contract import CompileCase
from tileops.core.errors import TargetError
from tileops.core.instances import live
from tileops.core.targets import unregister_target

from .declare import X, Y, case, entry, twice_op
from .good_ops import COMPOSITION, TwiceFwdOp

Act = Callable[[torch.Tensor], Any]


@dataclasses.dataclass(frozen=True)
class Fault:
    """One planted fault.

    Attributes:
        check: the check that catches it.
        text: what the check says, in part.
        case: a case of the op.
        act: what the target ``planted`` computes, where the fault is in the target.
        claims: whether that target is the default, and not asked for.
        unchecked: whether core's own refusal of such a result is taken away: the fault is below it.
        also: other checks that it may break.
    """

    check: str
    text: str
    case: CompileCase
    act: Act | None = None
    claims: bool = False
    unchecked: bool = False
    also: tuple[str, ...] = ()


@contextlib.contextmanager
def planted(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Inside, the fault is there; gives the targets to ask for."""
    act = fault.act
    if act is None:
        yield []
        return
    kernel: Callable[..., Any] = lambda *_: act  # noqa: E731
    if act is refuse:
        kernel = refuse
    elif act is leaves_out:
        kernel = lambda *_: leaves_out  # noqa: E731
    register_target(Target("planted", lambda device: fault.claims, kernel))
    with contextlib.ExitStack() as stack:
        stack.callback(unregister_target, "planted")
        if fault.unchecked:
            monkeypatch.setattr(serve, "enforce", _believe)
            if hasattr(functorch_config, "error_on_custom_op_aliasing"):
                stack.enter_context(functorch_config.patch(error_on_custom_op_aliasing=False))
        yield [] if fault.claims else ["planted"]


def _believe(
    op: Any, target: str, specs: Any, buffers: Any, result: Any, *_: Any, **__: Any
) -> Any:
    return dict(zip(specs, (result,), strict=True))


def around(name: str, wrapped: Callable[[Any, Callable[..., Any], Any], Any]) -> type[Op]:
    """An op whose boundary does something besides calling its operator."""
    cls = twice_op(name)
    plain = cls._call_boundary
    cls._call_boundary = lambda self, x: wrapped(self, plain, x)  # type: ignore[assignment, method-assign, misc]
    return cls


def forward(name: str, body: Callable[[Any, torch.Tensor], Any]) -> type[Op]:
    return twice_op(name, forward=body)


def breaks(self: Any, plain: Any, x: Any) -> Any:
    torch._dynamo.graph_break()
    return plain(self, x)


def specialises(self: Any, plain: Any, x: Any) -> Any:
    for _ in range(x.shape[0]):
        pass
    return plain(self, x)


def composite(
    name: str, body: Callable[[Any, torch.Tensor], Any], second: str | None = None
) -> type[Op]:
    """An op of two that double, with what ``body`` makes of them; ``second`` is the target of the
    second, where it is not the op's own."""

    def __init__(self: Any, *, target: str | None = None) -> None:
        Op.__init__(self, target=target)
        self.first, self.second = TwiceFwdOp(target=target), TwiceFwdOp(target=second or target)

    members = {"__init__": __init__, "forward": body}
    made = entry(name, X, Y, COMPOSITION)
    return type(name, (Op,), members, entry=made)  # type: ignore[call-overload, no-any-return]


def by_target(self: Any, x: torch.Tensor) -> Any:
    y = self.second(self.first(x))
    return y + 0 if self._explicit_target is not None else y


def while_compiling(self: Any, x: torch.Tensor) -> Any:
    y = self.second(self.first(x))
    return y * 1.01 if torch.compiler.is_compiling() else y


def made_in_forward(self: Any, x: torch.Tensor) -> Any:
    return TwiceFwdOp()(TwiceFwdOp()(x))


def one_by_one(self: Any, x: torch.Tensor) -> Any:
    return self.second(self.first(x))


def once(self: Any, x: torch.Tensor) -> Any:
    return self.first(x) * 2


def reused_key(self: Any, *, target: str | None = None) -> None:
    Op.__init__(self, target=target)
    live[f"{self._description}#0"] = live.pop(self._key)
    self._key = f"{self._description}#0"


def refuse(op: Op, interface: str, call: Any) -> Any:
    raise TargetError(f"{type(op).__name__}: the target 'planted' serves nobody")


@fills
def leaves_out(x: torch.Tensor, y: torch.Tensor) -> None:
    """The last element is not written."""
    y.view(-1)[:-1] = 2 * x.view(-1)[:-1]


def silently_written(x: torch.Tensor) -> torch.Tensor:
    """Past PyTorch, as a raw kernel writes."""
    y = x * 2
    x.numpy()[..., 0] += 1
    return y


ROOM: dict[Any, Any] = {}


def wrapped_workspace(x: torch.Tensor) -> torch.Tensor:
    """One workspace, in a storage that is new at each call: core does not know it again."""
    room = ROOM.setdefault(x.shape, numpy.empty(tuple(x.shape), dtype=numpy.float32))
    numpy.multiply(x.numpy(), 2, out=room)
    return torch.from_numpy(room)


def as_contiguous(self: Any, x: torch.Tensor) -> Any:
    """Reads memory as if the tensor were contiguous, as a kernel that forgets strides does."""
    strides = torch.empty(x.shape, device="meta").stride()
    return x.as_strided(x.shape, strides) * 2


def needs_a_row(self: Any, x: torch.Tensor) -> Any:
    return x.contiguous() * 2 + 0 * x.max()


def fake_of(size: Callable[[torch.Tensor], Any], dtype: torch.dtype = torch.float32) -> Any:
    return lambda self, x: torch.empty(size(x), dtype=dtype, device=x.device)


def with_fake(name: str, fake: Any) -> type[Op]:
    cls = twice_op(name)
    cls._fake_0 = fake  # type: ignore[attr-defined]
    return cls


_NODE = "tileops::contracts_planted"
FAULTS: dict[str, Fault] = {
    "the default target refuses": Fault(
        "served",
        "the target 'planted' serves nobody",
        case(twice_op("PlantedRefusedFwdOp")),
        refuse,
        claims=True,
        also=("cold-compile",),
    ),
    "a sub-op that does not take the target": Fault(
        "served",
        "asks for the target 'planted', and its sub-ops were served by planted, reference",
        case(
            composite("PlantedStrayFwdOp", one_by_one, second="reference"),
            oracle=lambda op, *, x: 4 * x,
        ),
        lambda x: x * 2,
        also=("cold-compile",),
    ),
    "a graph break": Fault(
        "cold-compile", "graph_break", case(around("PlantedBreakFwdOp", breaks))
    ),
    "an op made while it is traced": Fault(
        "cold-compile",
        "an op is made inside compiled code",
        case(
            composite("PlantedMadeFwdOp", made_in_forward),
            oracle=lambda op, *, x: 4 * x,
        ),
    ),
    "an extra node": Fault(
        "graph-nodes",
        f"must hold one call of {_NODE}_extra_fwd and nothing else; it holds _operator.mul, "
        f"{_NODE}_extra_fwd",
        case(around("PlantedExtraFwdOp", lambda self, plain, x: plain(self, x * 1))),
    ),
    "a sub-op that is not called": Fault(
        "graph-nodes",
        "must call ContractTwiceFwdOp 2 times, and does once; it holds",
        case(composite("PlantedOnceFwdOp", once), oracle=lambda op, *, x: 4 * x),
    ),
    "a node that the case does not name": Fault(
        "graph-nodes",
        "calls tileops::contracts_contract_twice_fwd, which the case does not name",
        case(
            composite("PlantedUnnamedFwdOp", lambda self, x: self.second(self.first(x))),
            oracle=lambda op, *, x: 4 * x,
            nodes=[],
        ),
    ),
    "a graph that changes with the target": Fault(
        "same-graph",
        "with no target",
        case(composite("PlantedTargetFwdOp", by_target), oracle=lambda op, *, x: 4 * x),
    ),
    "another value while compiling": Fault(
        "equals-eager",
        "compiled by aot_eager, y has",
        case(composite("PlantedCompilingFwdOp", while_compiling), oracle=lambda op, *, x: 4 * x),
        also=("equals-oracle",),
    ),
    "a result beyond its tolerance": Fault(
        "equals-oracle",
        "by the formula in float64",
        case(twice_op("PlantedOffFwdOp")),
        lambda x: x * 2.00001,
    ),
    "an element that is not written": Fault(
        "equals-oracle",
        "eager, y has 1 of 120 values wrong, the first at [2, 4, 7]: nan",
        case(twice_op("PlantedUnwrittenFwdOp")),
        leaves_out,
        also=("equals-eager", "opcheck"),
    ),
    "wrong strides": Fault(
        "fake-agrees",
        "and the fake is float32[3, 5, 8] on cpu with strides [40, 8, 1]",
        case(twice_op("PlantedStridesFwdOp")),
        lambda x: (x * 2).transpose(0, 1).contiguous().transpose(0, 1),
        unchecked=True,
        also=("cold-compile", "opcheck"),
    ),
    "a wrong dtype": Fault(
        "fake-agrees",
        "y is float64[3, 5, 8]",
        case(twice_op("PlantedDtypeFwdOp")),
        lambda x: (x * 2).double(),
        unchecked=True,
        also=("equals-oracle", "opcheck"),
    ),
    "a wrong shape from the fake": Fault(
        "fake-agrees",
        "y is float32[3, 5, 8]",
        case(with_fake("PlantedFakeFwdOp", fake_of(lambda x: (*x.shape, 1)))),
        also=("cold-compile", "opcheck"),
    ),
    "a silent write": Fault(
        "writes",
        "the call wrote x, which the entry does not let it",
        case(twice_op("PlantedWriteFwdOp")),
        silently_written,
        also=("opcheck",),
    ),
    "an input that is returned": Fault(
        "writes",
        "the result y shares memory with x",
        case(twice_op("PlantedInputFwdOp")),
        lambda x: x,
        unchecked=True,
        also=("equals-oracle", "opcheck"),
    ),
    "a key that is used again": Fault(
        "keys",
        "two instances have the key 'PlantedKeyFwdOp@",
        case(twice_op("PlantedKeyFwdOp", __init__=reused_key)),
    ),
    "strides that are not read": Fault(
        "strided",
        "stepped, eager: y has",
        case(forward("PlantedStridedFwdOp", as_contiguous)),
    ),
    "a write that the schema does not declare": Fault(
        "opcheck",
        "not defined as mutable but was mutated",
        case(twice_op("PlantedSchemaFwdOp")),
        silently_written,
        also=("writes",),
    ),
    "a crash for zero rows": Fault(
        "zero-rows", "numel() == 0", case(forward("PlantedRowsFwdOp", needs_a_row))
    ),
    "a size that is baked in, marked": Fault(
        "dynamic-marked",
        "ConstraintViolationError",
        case(around("PlantedMarkedFwdOp", specialises)),
        also=("dynamic-automatic",),
    ),
    "a graph for each size": Fault(
        "dynamic-automatic",
        "2 graphs were expected; after 8 rows 1, 16 rows 2, 2 rows 3, 33 rows 4",
        case(around("PlantedSizesFwdOp", specialises)),
        also=("dynamic-marked",),
    ),
    "a workspace that is used again": Fault(
        "called-twice",
        "eager: after 1 further calls the first y has",
        case(twice_op("PlantedWorkspaceFwdOp")),
        wrapped_workspace,
    ),
}
