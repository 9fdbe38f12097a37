"""Targets: named sets of kernels, and the rules by which one is chosen to serve a call.

Two come with the project: ``tilelang``, the in-tree kernels, for CUDA devices, and ``reference``,
plain PyTorch on any device. Others come from plugins (the entry-point group ``tileops.targets``)
and from :func:`register_target`. An instance asks once for each device, inside its first call
there, in this order: the constructor's ``target=``, the default under which a shared op or a
composite was built, the default (:func:`using_target`, :func:`set_default_target`, the
environment's ``TILEOPS_TARGET``), a target that claims the device, and last the in-tree ones.
Nothing is replaced in silence: a target that cannot serve a
call raises, and the message names those that can.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from tileops.core.errors import DefinitionError, KernelBuildError, TargetError, TileOpsError
from tileops.core.kernels import Kernel, program_for
from tileops.core.locks import ForkSafeLock
from tileops.core.plugins import failures_text, load_plugins

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = [
    "REFERENCE",
    "TILELANG",
    "Target",
    "default_target",
    "in_tree_kernel",
    "kernel_of",
    "register_target",
    "resolve",
    "set_default_target",
    "target_names",
    "unregister_target",
    "using_target",
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


def in_tree_kernel(op: Op, interface: str, call: Any) -> type[Kernel]:
    """The kernel class that the target ``tilelang`` serves ``call`` with.

    Raises:
        TargetError: the op has none for it.
    """
    if not op.kernel_types:
        raise TargetError(
            f"{type(op).__name__}: the target 'tilelang' has no kernels of this op; use "
            f"target='reference', or the target of a package that has some"
        )
    return op.interfaces[interface].select(call, op.kernel_types)


def _tilelang_kernel(op: Op, interface: str, call: Any) -> Callable[..., Any]:
    device: torch.device = call.device
    if device.type != "cuda":
        raise TargetError(
            f"{type(op).__name__}: the target 'tilelang' serves CUDA devices, and the call's "
            f"tensors are on {device}; use target='reference', which serves any device"
        )
    chosen = in_tree_kernel(op, interface, call)
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
_IN_TREE = (TILELANG, REFERENCE)

_lock = ForkSafeLock()
_registered: dict[str, Target] = {}
_default: str | None = None
_inner: contextvars.ContextVar[str | None] = contextvars.ContextVar("target", default=None)


def register_target(target: Target) -> None:
    """Adds a target under its name.

    Raises:
        DefinitionError: it is no :class:`Target`, its name is no string or its functions are none,
            or one of this name is there already.
    """
    if not isinstance(target, Target):
        raise DefinitionError(
            f"a target must be a tileops.core.Target, and {target!r} is of type "
            f"{type(target).__name__}"
        )
    if not isinstance(target.name, str) or not target.name:
        raise DefinitionError(
            f"a target's name must be a string that is not empty, and one is named {target.name!r}"
        )
    for what, function in (("claims", target.claims), ("kernel", target.kernel)):
        if not callable(function):
            raise DefinitionError(
                f"the target {target.name!r} has {function!r} for {what}, which cannot be called; "
                f"give it a function"
            )
    with _lock:
        if target.name in {*_registered, *(one.name for one in _IN_TREE)}:
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
    """The names of all targets: registered ones and plugins first, then those in the tree."""
    load_plugins(register_target)
    return (*_registered, *(target.name for target in _IN_TREE))


def default_target() -> str | None:
    """The name that stands in for a missing ``target=``, or None where the device decides."""
    return _inner.get() or _default or os.environ.get("TILEOPS_TARGET") or None


def set_default_target(name: str | None) -> None:
    """Sets the process default for ops built without ``target=``; None takes it back.

    An instance asks once for each device, at its first call there: one that has served a call
    keeps the target that served it. Shared ops and composites that are built while the default is
    set share nothing with those built before, and keep it for their first calls, whenever they are.

    Raises:
        TargetError: no target of this name is registered.
    """
    global _default
    if name is not None:
        _named(name, "the process default")
    _default = name


@contextlib.contextmanager
def using_target(name: str) -> Iterator[None]:
    """Makes ``name`` the default for first calls inside the block, in this thread or task.

    Shared ops and composites that are built inside share nothing with those built outside, and keep
    ``name`` for first calls after the block and in other threads.

    Raises:
        TargetError: no target of this name is registered.
    """
    _named(name, "using_target")
    token = _inner.set(name)
    try:
        yield
    finally:
        _inner.reset(token)


def resolve(op: str, explicit: str | None, device: torch.device) -> Target:
    """The target that serves a call of ``op`` on ``device``.

    Raises:
        TargetError: the target asked for does not exist, two claim the device, or one fails
            when it is asked.
    """
    name = explicit or default_target()
    if name is not None:
        chosen = explicit or _inner.get() or _default
        return _named(name, op if chosen else f"{op}, by TILEOPS_TARGET")
    load_plugins(register_target)
    claiming = [target for target in list(_registered.values()) if _claims(op, target, device)]
    if len(claiming) > 1:
        raise TargetError(
            f"{op}: the targets {', '.join(repr(t.name) for t in claiming)} all claim {device}; "
            f"choose one with target=... or set_default_target(...)"
        )
    if claiming:
        return claiming[0]
    return TILELANG if TILELANG.claims(device) else REFERENCE


def kernel_of(target: Target, op: Op, interface: str, call: Any) -> Callable[..., Any]:
    """What ``target`` serves ``call`` with.

    Raises:
        TargetError: it cannot serve the call, or gave back what cannot be called.
        KernelBuildError: its builder failed.
    """
    try:
        kernel = target.kernel(op, interface, call)
    except TileOpsError:
        raise
    except Exception as error:
        raise KernelBuildError(
            f"{type(op).__name__}: the target {target.name!r} failed to make a kernel for "
            f"{call!r}: {type(error).__name__}: {error}; nothing is kept of it, and the call can "
            f"be tried again"
        ) from error
    if not callable(kernel):
        raise TargetError(
            f"{type(op).__name__}: the target {target.name!r} made {kernel!r} for the interface "
            f"{interface!r}, which cannot be called; its kernel function must return a callable"
        )
    return kernel


def _claims(op: str, target: Target, device: torch.device) -> bool:
    try:
        return bool(target.claims(device))
    except Exception as error:
        # To pass it over would be to choose another in silence.
        raise TargetError(
            f"{op}: the target {target.name!r} failed when asked whether it claims {device}: "
            f"{type(error).__name__}: {error}; choose a target with target=... or "
            f"set_default_target(...)"
        ) from error


def _named(name: str, who: str) -> Target:
    load_plugins(register_target)
    for target in (*_registered.values(), *_IN_TREE):
        if target.name == name:
            return target
    raise TargetError(
        f"{who}: no target is named {name!r}; the targets are "
        f"{', '.join(map(repr, target_names()))}{failures_text()}"
    )
