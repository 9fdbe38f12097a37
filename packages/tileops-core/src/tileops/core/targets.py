"""Targets: named sets of kernels, and the rules by which one is chosen to serve a call.

Two come with the project: ``tilelang``, the in-tree kernels, for CUDA devices, and ``reference``,
plain PyTorch on any device. The order is: the constructor's ``target=``, the process default, a
registered target that claims the call's device, and last the in-tree ones. Nothing is replaced in
silence: a target that cannot serve a call raises, and the message names those that can.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tileops.core.errors import DefinitionError, TargetError
from tileops.core.kernels import program_for

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = [
    "REFERENCE",
    "TILELANG",
    "Target",
    "default_target",
    "register_target",
    "resolve",
    "set_default_target",
    "target_names",
]


@dataclasses.dataclass(frozen=True)
class Target:
    """A named set of kernels.

    ``claims`` says whether the target wants the calls of a device when nobody chose a target.
    ``kernel`` is given the op, the name of the interface and the call spec, and returns what
    serves: a callable that takes the interface's inputs and returns its outputs, or one marked
    with :func:`tileops.core.kernels.fills`. It raises :class:`~tileops.core.errors.TargetError`
    where it cannot serve.
    """

    name: str
    claims: Callable[[torch.device], bool]
    kernel: Callable[[Op, str, Any], Callable[..., Any]]


def _tilelang_kernel(op: Op, interface: str, call: Any) -> Callable[..., Any]:
    device: torch.device = call.device
    if device.type != "cuda":
        raise TargetError(
            f"{type(op).__name__}: the target 'tilelang' serves CUDA devices, and the call's "
            f"tensors are on {device}; use target='reference', which serves any device"
        )
    chosen = op.interfaces[interface].select(call, op.kernel_types)
    identity, build = chosen.entry_for(call)
    program = program_for(
        identity, build, device=device, op=type(op).__name__, shape=repr(call), kernel=chosen
    )
    return chosen(call, program)


def _reference_kernel(op: Op, interface: str, call: Any) -> Callable[..., Any]:
    role = op.interfaces[interface]

    def reference(*inputs: torch.Tensor | None) -> Any:
        return role.reference(call, *inputs)

    return reference


TILELANG = Target("tilelang", lambda device: device.type == "cuda", _tilelang_kernel)
REFERENCE = Target("reference", lambda device: device.type != "cuda", _reference_kernel)

_lock = threading.Lock()
_registered: dict[str, Target] = {}
_default: str | None = None


def register_target(target: Target) -> None:
    """Adds a target under its name.

    Raises:
        DefinitionError: a target of this name is there already.
    """
    with _lock:
        if target.name in target_names():
            raise DefinitionError(
                f"a target named {target.name!r} is registered already; give one of the two "
                f"another name"
            )
        _registered[target.name] = target


def unregister_target(name: str) -> None:
    """Takes back :func:`register_target`; instances that it serves keep their kernels."""
    with _lock:
        _registered.pop(name, None)


def target_names() -> tuple[str, ...]:
    """The names of all targets, registered ones first."""
    return (*_registered, TILELANG.name, REFERENCE.name)


def default_target() -> str | None:
    """The process default, or None where targets are detected by device."""
    return _default


def set_default_target(name: str | None) -> None:
    """Sets the process default for ops built without ``target=``; None returns to detection.

    An instance asks once for each device, at its first call there: one that has served a call
    keeps the target that served it.

    Raises:
        TargetError: no target of this name is registered.
    """
    global _default
    if name is not None:
        _named(name, "the process default")
    _default = name


def resolve(op: str, explicit: str | None, device: torch.device) -> Target:
    """The target that serves a call of ``op`` on ``device``.

    Raises:
        TargetError: the target asked for does not exist, or two claim the device.
    """
    if explicit is not None:
        return _named(explicit, op)
    if _default is not None:
        return _named(_default, op)
    claiming = [target for target in list(_registered.values()) if target.claims(device)]
    if len(claiming) > 1:
        raise TargetError(
            f"{op}: the targets {', '.join(repr(t.name) for t in claiming)} all claim {device}; "
            f"choose one with target=... or set_default_target(...)"
        )
    if claiming:
        return claiming[0]
    return TILELANG if TILELANG.claims(device) else REFERENCE


def _named(name: str, who: str) -> Target:
    for target in (*_registered.values(), TILELANG, REFERENCE):
        if target.name == name:
            return target
    raise TargetError(
        f"{who}: no target is named {name!r}; the targets are "
        f"{', '.join(map(repr, target_names()))}"
    )
