"""Serves one call with real tensors: inside the node, below everything a compiler sees.

The checks have run. What is left is to make written tensors contiguous, resolve the target, run
``forward``, hold its results to the signature, and, only when all of that went well, keep what
was resolved and built. A call that fails leaves the instance as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tileops.core.dtypes import dtype_name
from tileops.core.errors import ArgumentError, CaptureError, TileOpsError, ValuesReadError
from tileops.core.plans import Launch, Plan, replay
from tileops.core.results import enforce
from tileops.core.targets import Target, kernel_of, resolve
from tileops.core.writes import WriteWatch

if TYPE_CHECKING:
    from tileops.core.op import Op
    from tileops.manifest.model import Branch, Entry

__all__ = [
    "CallContext",
    "KernelInUse",
    "OutputSpec",
    "State",
    "check_values",
    "current",
    "kernel_for",
    "kernels_in_use",
    "outputs_of",
    "serve",
]


class OutputSpec(NamedTuple):
    """What the signature says of one output of one call."""

    shape: Sequence[int]
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)


class State:
    """What an instance keeps between calls: the targets that serve it and its kernels."""

    __slots__ = ("kernels", "returned", "served_by", "targets")

    def __init__(self) -> None:
        self.targets: dict[torch.device, Target] = {}
        self.kernels: dict[Any, Callable[..., Any]] = {}
        self.served_by: str | None = None
        self.returned: dict[int, Any] = {}


class CallContext:
    """One call in flight: its target, the outputs to allocate, and what it built so far."""

    __slots__ = (
        "allocated",
        "buffers",
        "built",
        "launches",
        "op",
        "outer",
        "reads_values",
        "specs",
        "target",
        "watch",
        "written",
    )

    def __init__(
        self,
        op: Op,
        target: Target,
        specs: dict[str, OutputSpec],
        buffers: dict[str, torch.Tensor],
        watch: WriteWatch | None = None,
    ) -> None:
        self.op = op
        self.target = target
        self.specs = specs
        self.buffers = buffers
        self.built: dict[Any, Callable[..., Any]] = {}
        self.launches: list[Launch] = []
        self.allocated: list[torch.Tensor] = []
        self.reads_values = False
        self.watch = watch or WriteWatch({}, ())
        self.written = self.watch.written
        self.outer: CallContext | None = None

    def __enter__(self) -> CallContext:
        self.outer = getattr(_local, "context", None)
        _local.context = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.context = self.outer

    def is_empty(self, name: str) -> bool:
        """Whether the output ``name`` has no elements."""
        return name in self.specs and 0 in self.specs[name].shape

    def has_nothing_to_do(self, outputs: Sequence[str]) -> bool:
        """Whether a kernel that fills ``outputs`` has no element to write, there or elsewhere."""
        return all(map(self.is_empty, outputs)) and not any(t.numel() for t in self.written)

    def output(self, name: str) -> torch.Tensor:
        """The tensor that a kernel fills for the output ``name``."""
        buffer = self.buffers.get(name)
        if buffer is None:
            buffer = self.specs[name].empty()
            self.allocated.append(buffer)
        return buffer


_local = threading.local()


def current(op: Op) -> CallContext:
    """The call of ``op`` that is in flight in this thread.

    Raises:
        TileOpsError: there is none; ``forward`` was called outside the op's node.
    """
    context: CallContext | None = getattr(_local, "context", None)
    if context is None or context.op is not op:
        raise TileOpsError(
            f"{type(op).__name__}: kernel_for serves forward inside a call of the op; call the op "
            f"itself, not its forward"
        )
    return context


def kernel_for(op: Op, interface: str, call: Any) -> Callable[..., Any]:
    """What serves ``call``: takes the interface's inputs, returns its outputs."""
    context = current(op)
    outputs = op.interfaces[interface].outputs
    if context.has_nothing_to_do(outputs):
        # Nothing to compute; and there may be no kernel for an axis of no elements.
        return lambda *_: _one_or_all(tuple(context.output(name) for name in outputs))
    identity = (context.target.name, interface, call)
    kernel = op._state.kernels.get(identity) or context.built.get(identity)
    if kernel is None:
        kernel = context.built[identity] = kernel_of(context.target, op, interface, call)
    if not getattr(kernel, "fills_outputs", False):
        return kernel

    def launch(*inputs: torch.Tensor | None) -> Any:
        results = tuple(context.output(name) for name in outputs)
        context.launches.append(Launch(kernel, inputs, outputs, results))
        with context.watch.kernel():
            kernel(*inputs, *results)
        return _one_or_all(results)

    return launch


def check_values(op: Op, holds: torch.Tensor, message: Callable[[], str]) -> None:
    """Requires that ``holds``, a 0-d tensor made of the call's values, be true.

    Raises:
        ArgumentError: it is not.
        ValuesReadError: a CUDA graph is being captured, in which nothing can be read.
    """
    context = current(op)
    context.reads_values = True
    if holds.device.type == "meta":
        return  # planning: see tileops.core.planning
    if holds.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise ValuesReadError(
            f"{type(op).__name__}: the op checks its tensors' values at each call, and none can be "
            f"read while a CUDA graph is captured; build an op without the check"
        )
    if not bool(holds):
        raise ArgumentError(f"{type(op).__name__}: {message()}")


class KernelInUse(NamedTuple):
    """A kernel of an instance: who made it, for which interface and which call spec."""

    target: str
    interface: str
    call: Any
    kernel: Callable[..., Any]


def kernels_in_use(op: Op) -> Iterator[KernelInUse]:
    """The kernels that calls of ``op`` have left with it."""
    for (target, interface, call), kernel in list(op._state.kernels.items()):
        yield KernelInUse(target, interface, call, kernel)


def _one_or_all(results: tuple[torch.Tensor, ...]) -> Any:
    if not results:
        return None
    return results[0] if len(results) == 1 else results


def serve(
    op: Op, index: int, specs: Sequence[Any], arguments: Sequence[Any], key: Any = None
) -> Any:
    """Runs branch ``index`` of ``op`` and returns what the branch's operator returns.

    ``key``, where it is given, is the plan key of a call that was checked just now: a plan is
    kept under it once the call went well.
    """
    entry = type(op).entry
    branch = entry.branches[index]
    names = type(op)._argument_names[index]
    given = dict(zip(names, _told_apart(arguments), strict=True))
    original = {name: given[name] for name in branch.writes}
    passed = dict(given)
    devices = (spec[2] for spec in specs if spec is not None)
    device = next(devices, None) or _device_of(arguments)
    target = op._state.targets.get(device)
    if target is None:
        _refuse_capture(op, device, passed)
        target = resolve(type(op).__name__, op._wanted_target, device)
    for name, tensor in original.items():
        # Copied in here and back through the strides below: kernels see contiguous tensors only.
        given[name] = tensor.contiguous()
    outputs, buffers = outputs_of(entry, branch, specs, given)
    watch = WriteWatch(given, branch.writes, idle=key is None)
    context = CallContext(op, target, outputs, buffers, watch)
    # Autocast is off while AOTAutograd traces; a target made of PyTorch operators must not give
    # one dtype eager and another compiled.
    inputs = [given[spec.name] for spec in entry.signature.inputs]
    named = {name: given[name] for name in names[len(inputs) :]}
    with context, torch._C._DisableAutocast(), torch.no_grad(), watch:
        result = op.forward(*inputs, **named)
    results = enforce(
        op,
        target.name,
        outputs,
        buffers,
        result,
        passed,
        context.allocated,
        nested=context.outer is not None,
    )
    if key is not None:
        watch.refuse_undeclared(type(op).__name__, target.name)
    for name, tensor in original.items():
        if (temporary := given[name]) is not tensor:
            tensor.copy_(temporary)
        torch.autograd.graph.increment_version(tensor)

    op._state.targets[device] = target
    if len(op._state.kernels) + len(context.built) > _MOST_KERNELS:
        op._state.kernels.clear()
    op._state.kernels.update(context.built)
    op._state.served_by = target.name
    if key is not None:
        _keep_plan(op, index, specs, list(passed.values()), key, context, results)
    return _one_or_all(tuple(results[name] for name in branch.returns))


def outputs_of(
    entry: Entry, branch: Branch, specs: Sequence[Any], given: Mapping[str, Any]
) -> tuple[dict[str, OutputSpec], dict[str, torch.Tensor]]:
    """What ``branch`` gives, by name: every output, and those of them that are in ``given``."""
    outputs = {
        output.name: OutputSpec(*spec)
        for output, spec in zip(entry.signature.outputs, specs, strict=True)
        if output.name not in branch.omitted
    }
    buffers = {}
    for output in entry.signature.outputs:
        if output.alias is not None and output.alias in branch.written:
            buffers[output.name] = given[output.alias]
        elif output.buffer is not None and branch.out:
            buffers[output.name] = given["out"]
    return outputs, buffers


def _refuse_capture(op: Op, device: torch.device, arguments: Mapping[str, Any]) -> None:
    """Before the first call on ``device``: it may not be captured, nor part of it enqueued.

    Raises:
        CaptureError: a CUDA graph is being captured.
    """
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        return
    tensors = ", ".join(
        f"{name} {dtype_name(item.dtype)}{list(item.shape)}"
        for name, item in arguments.items()
        if isinstance(item, torch.Tensor)
    )
    raise CaptureError(
        f"{type(op).__name__}: this instance has served no call on {device} yet, and a first call "
        f"cannot be captured in a CUDA graph; warm it up before the capture, with "
        f"op.warm_up(...) or one call, for {tensors}, then capture again"
    )


def _told_apart(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, each tensor an object of its own.

    A plan finds a kernel's tensors among the arguments by identity: after a call with one tensor
    in two places it would give the next call's second tensor to nobody.
    """
    found: list[Any] = []
    for item in arguments:
        if isinstance(item, torch.Tensor) and any(item is other for other in found):
            item = item.detach()
        found.append(item)
    return found


_MOST_PLANS = 4096
_MOST_KERNELS = 1024


def _keep_plan(
    op: Op,
    index: int,
    specs: Sequence[Any],
    arguments: Sequence[Any],
    key: Any,
    context: CallContext,
    results: dict[str, torch.Tensor],
) -> None:
    branch = type(op).entry.branches[index]
    settled = key[1]
    plan: Plan | None = None
    if settled and not context.watch.forward_wrote and not context.reads_values:
        plan = replay(
            context.launches,
            arguments,
            context.specs,
            context.buffers,
            branch.returns,
            results,
            context.written,
        )
    if plan is None:

        def plan(op: Op, *arguments: Any) -> Any:
            return serve(op, index, specs, arguments)

    if len(op._plans) >= _MOST_PLANS:
        # A serving process sees few shapes over and over; one that sees this many starts afresh.
        op._plans.clear()
    op._plans[key] = plan


def _device_of(arguments: Sequence[Any]) -> torch.device:
    return next(item.device for item in arguments if isinstance(item, torch.Tensor))
