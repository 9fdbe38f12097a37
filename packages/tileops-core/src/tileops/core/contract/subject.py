"""What is checked: one case on one device, served by one target, and what its checks share."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from tileops.core.contract.check import Blocked, Finding
from tileops.core.contract.registry import CompileCase
from tileops.core.errors import ContractError
from tileops.core.op import Op
from tileops.core.testing import GraphRecorder, poisoned, to_float64

__all__ = ["BACKENDS", "Compiled", "Ran", "Subject", "cold", "effects"]

_Step = TypeVar("_Step")

BACKENDS = ("aot_eager", "inductor")
"""What every case is compiled with."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """One call: its results by name, its arguments afterwards, and as they were before."""

    results: dict[str, Any]
    given: dict[str, Any]
    before: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A cold compile: the op, its graphs, and the first call, which compiled it."""

    op: Op
    recorder: GraphRecorder
    ran: Ran


@dataclasses.dataclass(frozen=True)
class Effects:
    """What a call writes, by name, and which of its outputs are there, in order.

    ``aliases`` maps an output that is one of the caller's own tensors to its argument.
    """

    written: tuple[str, ...]
    outputs: tuple[str, ...]
    aliases: Mapping[str, str]


def effects(op: Op, arguments: Mapping[str, Any]) -> Effects:
    """What the entry says of the call ``op(**arguments)``."""
    signature = type(op).entry.signature
    names: dict[str, Any] = dict(op._params)
    for spec in signature.inputs:
        names[spec.name] = None if arguments.get(spec.name) is None else spec.name

    def holds(condition: Any) -> bool:
        return condition if isinstance(condition, bool) else bool(condition.evaluate(names))

    written = [
        spec.name
        for spec in signature.inputs
        if names[spec.name] is not None and holds(spec.mutated)
    ]
    aliases = {}
    outputs = [o for o in signature.outputs if o.when is None or holds(o.when)]
    filled = arguments.get("out") is not None
    for output in outputs:
        if output.alias in written:
            aliases[output.name] = output.alias or ""
        elif output.buffer is not None and filled:
            aliases[output.name] = "out"
    if filled:
        written.append("out")
    return Effects(tuple(written), tuple(output.name for output in outputs), aliases)


@contextlib.contextmanager
def cold(device: torch.device) -> Iterator[None]:
    """Inside, whatever is compiled is compiled anew: nothing that was compiled before is found."""
    from torch._functorch import config as functorch

    torch._dynamo.reset()
    # Not force_disable_caches: it warns once for each compile.
    with (
        torch.no_grad(),
        torch._inductor.config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch.patch(enable_autograd_cache=False),
        torch._dynamo.config.patch(assume_static_by_default=True, automatic_dynamic_shapes=True),
    ):
        yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Subject:
    """One case on one device, served by one target.

    Attributes:
        target: the target that is asked for, None for whom a plain call is served by.
        served_by: the name of the target that serves it.
        others: further targets that serve the case on this device.
        leads: whether checks of the op, whoever serves it, are made here.
        seed: where its random inputs come from.
    """

    def __init__(
        self,
        case: CompileCase,
        device: torch.device,
        *,
        target: str | None = None,
        served_by: str = "",
        others: tuple[str, ...] = (),
        leads: bool = True,
        seed: int = 0,
    ) -> None:
        self.case = case
        self.device = device
        self.target = target
        self.served_by = served_by or target or ""
        self.others = others
        self.leads = leads
        self.seed = seed
        self.processes: Any = None
        self.found: dict[str, Finding] = {}
        self._steps: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """What errors call it."""
        where = f" by {self.served_by}" if self.served_by else ""
        return f"{self.case.name} on {self.device}{where}"

    @property
    def has_boundary(self) -> bool:
        return self.case.op.entry.has_boundary

    @property
    def has_tensors(self) -> bool:
        return bool(self.case.op.entry.signature.inputs)

    def make(self, target: str | None = None) -> Op:
        """A new instance, which has served no call; ``target`` is another than the subject's."""
        target = target or self.target
        return self.case.make(self.device, **({} if target is None else {"target": target}))

    def inputs(self, draw: int = 0) -> dict[str, Any]:
        """The call's arguments, in memory of their own; ``draw`` numbers different ones."""
        generator = torch.Generator(self.device).manual_seed(self.seed + draw)
        return self.case.inputs(self.device, generator)

    def sized(self, rows: int, draw: int = 0) -> dict[str, Any]:
        """The arguments with so many rows, by the case's own ``sized``."""
        assert self.case.sized is not None
        generator = torch.Generator(self.device).manual_seed(self.seed + draw)
        return self.case.sized(self.device, generator, rows)

    @functools.cached_property
    def effects(self) -> Effects:
        return effects(self.make(), self.inputs())

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Ran:
        """Makes one call under ``no_grad``, and waits for it."""
        before = {name: _copied(value) for name, value in arguments.items()}
        with torch.no_grad():
            results = function(**arguments)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return Ran(self._named(results), arguments, before)

    def _named(self, results: Any) -> dict[str, Any]:
        names = self.effects.outputs
        found = () if results is None else results
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(names):
            raise ContractError(
                f"the call gave {len(found)} results, and the entry has {len(names)} "
                f"({', '.join(names) or 'none'})"
            )
        return dict(zip(names, found, strict=True))

    @property
    def eager(self) -> Ran:
        """The first call of an instance of its own, eager.

        Raises:
            Blocked: it failed.
        """
        return self._step("served", "eager", lambda: self.call(self.make(), self.inputs()))

    @property
    def filled(self) -> Ran:
        """The same call where memory that it allocates holds NaN before a kernel writes it."""

        def run() -> Ran:
            with poisoned():
                return self.call(self.make(), self.inputs())

        return self._step("served", "filled", run)

    def compiled(self, backend: str) -> Compiled:
        """The first call of an instance of its own, which compiles it.

        Raises:
            Blocked: it failed.
        """

        def run() -> Compiled:
            op, recorder = self.make(), GraphRecorder(backend)
            with cold(self.device):
                ran = self.call(torch.compile(op, backend=recorder, fullgraph=True), self.inputs())
            return Compiled(op, recorder, ran)

        return self._step("cold-compile", f"compiled {backend}", run)

    def _step(self, check: str, name: str, run: Callable[[], _Step]) -> _Step:
        """What several checks stand on, done once; the check named ``check`` says how it went."""
        if name not in self._steps:
            try:
                self._steps[name] = run()
            except Exception as error:
                self._steps[name] = Blocked(check, error)
        found: _Step | Blocked = self._steps[name]
        if isinstance(found, Blocked):
            raise Blocked(found.by, found.cause)
        return found

    def forget(self) -> None:
        """Lets go of what the checks shared."""
        self._steps.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def truth(self, arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The formula in float64: outputs by name, and written inputs where the oracle has them."""
        exact = {name: to_float64(_copied(value)) for name, value in arguments.items()}
        exact.pop("out", None)
        found = self.case.oracle(self.make(), **exact)
        if isinstance(found, Mapping):
            return dict(found)
        return self._named(found)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
