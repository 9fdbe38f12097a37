"""Registers operators with PyTorch: the one place that touches ``torch.library``.

Operators are made with ``Library.define``, ``impl`` and ``register_fake``, which costs a call half
of what ``torch.library.custom_op`` does. Registering the same operator again (a module is
reloaded, a notebook cell runs twice, a decorator makes the class a second time) keeps the one that
is there when schema and tags are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tileops.core.errors import DefinitionError
from tileops.core.lazy import LAZY_KEYS
from tileops.core.locks import ForkSafeLock

__all__ = ["TAGS", "OperatorSpec", "register", "shortcut"]


TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
"""The tags of an operator that says nothing else."""


@dataclasses.dataclass(frozen=True)
class OperatorSpec:
    """One operator to register.

    ``signature`` is the schema behind the name (``"(Tensor x, str key) -> Tensor"``). ``body``
    serves real tensors on every backend, ``fake`` gives the outputs' metadata, ``autograd`` is
    the operator's own Autograd kernel, which receives the dispatch key set first.
    ``owner`` names the class in errors. ``lazy``, like ``autograd``, is the kernel for negated and
    conjugated views; without one PyTorch's own serves them.
    """

    namespace: str
    name: str
    signature: str
    body: Callable[..., Any]
    fake: Callable[..., Any]
    autograd: Callable[..., Any] | None
    owner: str
    lazy: Callable[..., Any] | None = None
    tags: tuple[torch.Tag, ...] = TAGS

    @property
    def qualified_name(self) -> str:
        return f"{self.namespace}::{self.name}"


_lock = ForkSafeLock()
_libraries: dict[str, torch.library.Library] = {}
_registered: dict[str, OperatorSpec] = {}


def register(specs: Sequence[OperatorSpec]) -> list[Any]:
    """Registers ``specs`` and returns their operators, in order.

    All are checked before the first is defined, so a refused class leaves nothing behind.

    Raises:
        DefinitionError: a name is not one that PyTorch takes, or is already held by an operator of
            another schema.
    """
    with _lock:
        for spec in specs:
            _check(spec)
        for spec in specs:
            if spec.qualified_name not in _registered:
                _define(spec)
        return [_overload(spec) for spec in specs]


def _check(spec: OperatorSpec) -> None:
    # A hyphen passes define and fails at register_fake, which would leave half an operator.
    for part in (spec.namespace, spec.name):
        if not part.isidentifier():
            raise DefinitionError(
                f"{spec.owner}: {spec.qualified_name!r} is not an operator name: {part!r} must be "
                f"a Python identifier; rename the class, its family or its namespace"
            )
    held = _registered.get(spec.qualified_name)
    if held is not None and (held.signature, held.tags) != (spec.signature, spec.tags):
        raise DefinitionError(
            f"{spec.owner}: the operator {spec.qualified_name} is already registered by "
            f"{held.owner} with the schema {held.signature}, and {spec.owner} needs "
            f"{spec.signature}; an operator's schema cannot change within a process: restart it, "
            f"or give one of the two classes another name"
        )


def _define(spec: OperatorSpec) -> None:
    library = _libraries.get(spec.namespace)
    if library is None:
        library = _libraries[spec.namespace] = torch.library.Library(spec.namespace, "FRAGMENT")
    library.define(spec.name + spec.signature, tags=spec.tags)
    library.impl(spec.name, spec.body, "CompositeExplicitAutograd")
    torch.library.register_fake(spec.qualified_name, spec.fake, lib=library)
    if spec.autograd is not None:
        library.impl(spec.name, spec.autograd, "Autograd", with_keyset=True)
    if spec.lazy is not None:
        for key in LAZY_KEYS:
            library.impl(spec.name, spec.lazy, key, with_keyset=True)
    _registered[spec.qualified_name] = spec


_dispatchers: dict[str, Callable[..., Any]] = {}


def shortcut(overload: Any, operator: Callable[..., Any]) -> Callable[..., Any]:
    """Lets Python calls of ``overload`` go to ``operator``; returns the way to the dispatcher.

    What a compiler generates calls the overload from Python, and the dispatcher with its
    conversions is half of what such a call costs. ``operator`` takes the schema's arguments and
    must call the returned function for whatever something watches. Calls from C++, and those that
    enter through the operator's packet, do not pass here.
    """
    name = overload.name()
    # ``_op`` is what OpOverload.__call__ calls, and PyTorch's own: where a release lacks it,
    # calls go the ordinary way.
    if not hasattr(overload, "_op"):
        return overload  # type: ignore[no-any-return]
    dispatcher = _dispatchers.setdefault(name, overload._op)
    overload._op = operator
    return dispatcher


def _overload(spec: OperatorSpec) -> Any:
    return getattr(getattr(torch.ops, spec.namespace), spec.name).default
