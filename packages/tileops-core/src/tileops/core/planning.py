"""Which kernels calls need, found out without launching or building anything.

A call on meta tensors runs every op's checks and ``forward`` as a real one does; only
``kernel_for`` gives kernels that do nothing, and notes what was asked of it. So what is found is
what a call would ask for, through composites and through ops that call ops, on a machine without a
GPU. A ``forward`` that reads its tensors' values cannot be planned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from tileops.core.instances import find
from tileops.core.kernels import Kernel, fills
from tileops.core.serve import CallContext, outputs_of
from tileops.core.targets import Target, in_tree_kernel
from tileops.core.writes import WriteWatch

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = ["Build", "Request", "current_planner", "planning"]


class Build(NamedTuple):
    """The in-tree kernel that serves a request, and how its program is built."""

    kernel: type[Kernel]
    identity: Hashable
    build: Callable[[], Any]


class Request(NamedTuple):
    """What ``forward`` of ``op`` asked ``kernel_for`` for."""

    op: Op
    interface: str
    call: Any

    def build(self) -> Build:
        """What the target ``tilelang`` would build for it.

        Raises:
            TargetError: no in-tree kernel serves the call.
        """
        kernel = in_tree_kernel(self.op, self.interface, self.call)
        return Build(kernel, *kernel.entry_for(self.call))


@contextlib.contextmanager
def planning() -> Iterator[list[Request]]:
    """Inside, calls of ops on meta tensors add what they need to the list.

    Whatever a call raises on tensors of the same shapes and dtypes, it raises here.
    """
    mode = _Planner()
    with mode:
        yield mode.requests


def current_planner() -> _Planner | None:
    """The planner that this thread's calls are seen by, if it is the innermost mode."""
    mode = _get_current_dispatch_mode()
    return mode if isinstance(mode, _Planner) else None


class _Planner(TorchDispatchMode):
    """Sees every operator, and runs ``forward`` behind those that are an op's."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.requests: list[Request] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled in here, and PyTorch's way of making sure imports dynamo, which takes
        # as long as torch itself.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if args and isinstance(args[-1], str) and isinstance(func, torch._ops.OpOverload):
            op = find(args[-1]) if "@" in args[-1] else None
            names = () if op is None else type(op).compile_op_names
            if op is not None and func.name() in names:
                with self:
                    self._forward(op, names.index(func.name()), args[:-1])
        return result

    def _forward(self, op: Any, index: int, arguments: Sequence[Any]) -> None:
        entry = type(op).entry
        branch = entry.branches[index]
        names = type(op)._argument_names[index]
        given = dict(zip(names, arguments, strict=True))
        absent = {"out": None} if any(branch.out for branch in entry.branches) else {}
        specs = op._infer(**{**absent, **given})
        outputs, buffers = outputs_of(entry, branch, specs, given)
        target = Target("planning", lambda _: False, self._kernel)
        context = CallContext(op, target, outputs, buffers, WriteWatch(given, branch.writes))
        inputs = [given[spec.name] for spec in entry.signature.inputs]
        named = {name: given[name] for name in names[len(inputs) :]}
        with context, torch._C._DisableAutocast(), torch.no_grad():
            op.forward(*inputs, **named)

    def plan_factory(self, op: Op, specs: dict[str, Any]) -> Any:
        """Runs ``forward`` of an op that takes no tensor, so has no operator to be seen by."""
        target = Target("planning", lambda _: False, self._kernel)
        with self, CallContext(op, target, specs, {}), torch.no_grad():
            return op.forward()

    def _kernel(self, op: Op, interface: str, call: Any) -> Callable[..., Any]:
        self.requests.append(Request(op, interface, call))
        return fills(lambda *_: None)
