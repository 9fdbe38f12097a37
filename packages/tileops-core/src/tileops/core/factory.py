"""Calls of ops that take no tensor: what they give depends on params alone, so there is no node.

Eager, such a call is served as any other: a target is resolved and its kernel fills the outputs,
which the entry's ``device`` param places. Whatever traces, fakes or transforms what PyTorch does
(dynamo, export, ``make_fx``, ``torch.jit.trace``, fake mode, functorch, a meta device) gets the
same ``forward``, whose ``kernel_for`` then gives the interface's reference: plain PyTorch, which a
compiler fuses into what reads it. ``torch.compiler.is_compiling()`` would not do for that: it sees
few of these, and is true in threads that compile nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tileops.core import planning
from tileops.core.errors import DefinitionError, ParamError, TargetError
from tileops.core.params import WITHOUT_INDEX
from tileops.core.serve import CallContext, OutputSpec, current, serve
from tileops.core.targets import REFERENCE
from tileops.core.watch import default_device, not_compiled, traces

if TYPE_CHECKING:
    from tileops.core.op import Op
    from tileops.manifest import Entry
    from tileops.manifest.calls import Call

__all__ = ["call_factory", "check_entry", "is_factory", "output_device", "place", "traced_kernel"]

_CallT = TypeVar("_CallT", bound="Call")


def is_factory(entry: Entry) -> bool:
    """Whether ops of ``entry`` take no call-time tensor, and are no composites."""
    return not entry.signature.inputs and not entry.composition


def check_entry(entry: Entry) -> None:
    """Requires that a factory's call take nothing at all.

    Raises:
        DefinitionError: the entry has call-time numbers, or an output that fills a buffer.
    """
    taken = [number.name for number in entry.signature.ints]
    taken += ["out" for output in entry.signature.outputs if output.buffer is not None]
    if taken:
        raise DefinitionError(
            f"{entry.name}: an op without inputs has no operator, so its call takes nothing, and "
            f"the entry gives it {', '.join(taken)}; make params of them"
        )


def call_factory(op: Op) -> Any:
    """One call of ``op``; the generated ``__call__`` of every op that takes no tensor.

    Raises:
        TargetError: the call is traced and has an explicit target, or its target cannot serve it.
        ParamError: no tensor can be made on the device that a param names.
        CaptureError: a CUDA graph is captured, and the instance is not warm.
    """
    # Dynamo folds the first condition, and reads nothing further.
    if torch.compiler.is_dynamo_compiling():
        _refuse_target(op)
        return op.forward()
    if traces():
        return _call_traced(op)
    devices = _devices(op)
    key = (0, True, *devices)
    plan = op._plans.get(key)
    if plan is None:
        specs = _specs(op, devices)
        if any(device.type == "meta" for device in devices):
            with CallContext(op, REFERENCE, specs, {}):
                return op.forward()
        for name, device in zip(op._device_params, devices, strict=True):
            if device.type not in WITHOUT_INDEX:
                _require_here(op, name, device)

        def plan(op: Op) -> Any:
            return serve(op, 0, list(specs.values()), (), key)

    return not_compiled(plan, op)


def traced_kernel(op: Op, interface: str, call: Any) -> Callable[..., Any]:
    """What ``kernel_for`` gives a ``forward`` that dynamo traces: the interface's reference."""
    return functools.partial(op.interfaces[interface].reference, call)


def output_device(op: Op) -> torch.device | None:
    """Where the first output of the call in flight goes, for ``forward`` of a factory.

    A device that a param leaves open is PyTorch's default device. None stands for it where dynamo
    traces, and means it to every function of PyTorch that makes a tensor.
    """
    if torch.compiler.is_dynamo_compiling():
        device: torch.device | None = getattr(op, op._device_params[0])
        return device
    return next(iter(current(op).specs.values())).device


def place(entry: Entry, call: _CallT, device: torch.device | str) -> _CallT:
    """``call`` on ``device``, where its params leave that open."""
    names = [param.name for param in entry.signature.params if param.type == "device"]
    given = {name: str(device) for name in names if call.params[name] is None}
    return dataclasses.replace(call, params={**call.params, **given})


def _call_traced(op: Op) -> Any:
    planner = planning.current_planner()
    if planner is not None:
        meta = [torch.device("meta")] * len(op._device_params)
        return planner.plan_factory(op, _specs(op, meta))
    _refuse_target(op)
    with CallContext(op, REFERENCE, _specs(op, _devices(op)), {}):
        return op.forward()


def _refuse_target(op: Op) -> None:
    """Requires of a traced call that its target be plain PyTorch.

    Raises:
        TargetError: the constructor was given another.
    """
    if op._explicit_target is not None and op._explicit_target != "reference":
        raise TargetError(
            f"{type(op).__name__}: the target {op._explicit_target!r} cannot serve a traced call: "
            f"an op that takes no tensor is no node of the graph, and is traced as plain PyTorch; "
            f"leave target= out, or call the op outside and pass its result in"
        )


def _devices(op: Op) -> list[torch.device]:
    return [_concrete(op, name) for name in op._device_params]


def _specs(op: Op, devices: Sequence[torch.device]) -> dict[str, OutputSpec]:
    names = (output.name for output in type(op).entry.signature.outputs)
    return {
        name: OutputSpec(shape, dtype, device)
        for name, (shape, dtype, _), device in zip(names, op._infer(), devices, strict=True)
    }


def _concrete(op: Op, param: str) -> torch.device:
    """The device that a tensor made on the param's device reports: with an index, if it has one."""
    device: torch.device | None = getattr(op, param)
    if device is None:
        try:
            device = default_device()
        except _MISSING as error:
            raise _not_here(op, f"{param} is None, and PyTorch's default device", error) from error
    if device.type in WITHOUT_INDEX:
        return WITHOUT_INDEX[device.type]
    if device.index is not None:
        return device
    if device.type == "cuda" and torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return _require_here(op, param, device)


def _require_here(op: Op, param: str, device: torch.device) -> torch.device:
    """Requires that a tensor can be made on ``device``, and gives back the device that it reports.

    Raises:
        ParamError: there is no such device, or PyTorch was built without it.
    """
    try:
        return torch.empty(0, device=device).device
    except _MISSING as error:
        raise _not_here(op, f"{param} is {str(device)!r}, which", error) from error


#: Without a backend PyTorch fails an assertion, misses its module, or has no operator for it.
_MISSING = (AssertionError, ImportError, RuntimeError)


def _not_here(op: Op, what: str, error: Exception) -> ParamError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return ParamError(f"{type(op).__name__}: {what} is not here: {reason}")
