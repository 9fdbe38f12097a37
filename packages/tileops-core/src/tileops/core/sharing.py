"""Shared instances, copies and pickles.

The copy of a shared op is the shared op; of any other a new instance with a key of its own. What
an op keeps for its calls (kernels, plans, the resolved target) is never copied or pickled: the new
instance finds the built programs again by their identity.
"""

from __future__ import annotations

import inspect
import weakref
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

from tileops.core.errors import DefinitionError
from tileops.core.instances import describe, not_traced
from tileops.core.locks import ForkSafeLock
from tileops.core.params import canonical_params, check_target
from tileops.core.targets import default_target

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = ["copy", "is_shared", "reduce", "restore", "shared"]

_OpT = TypeVar("_OpT", bound="Op")

_lock = ForkSafeLock()
_shared: weakref.WeakValueDictionary[tuple[type, str, str | None, str | None], Any] = (
    weakref.WeakValueDictionary()
)


def shared(
    cls: type[_OpT], args: tuple[Any, ...], kwargs: dict[str, Any], target: str | None
) -> _OpT:
    """The live instance of ``cls`` for these constructor arguments, or a new one.

    Raises:
        DefinitionError: the constructor does not take all params and the target by their names.
        ParamError: a param or the target is not what the constructor takes.
    """
    check_target(cls.__name__, target)
    _check_constructor(cls)
    # Bound here and not by building an instance: each build would use up a key, and keys would
    # depend on how often somebody asked.
    bound = inspect.signature(cls).bind(*args, target=target, **kwargs)
    bound.apply_defaults()
    params = canonical_params(
        cls.entry, {param.name: bound.arguments[param.name] for param in cls.entry.signature.params}
    )
    # An instance keeps the target of its first call. Who asks where another default is set has to
    # get another instance, or that default would be passed over in silence.
    default = default_target() if target is None else None
    key = (cls, describe(cls._identity, params), target, default)
    with _lock:
        instance: _OpT | None = _shared.get(key)
        if instance is None:
            instance = cls(**params, target=target)
            instance._shared_under = default
            _shared[key] = instance
        return instance


not_traced(shared)


def is_shared(op: Op) -> bool:
    """Whether :meth:`Op.shared` gives out this instance."""
    key = (type(op), op._description, op._explicit_target, op._shared_under)
    return _shared.get(key) is op


def copy(op: _OpT, memo: dict[int, Any] | None) -> _OpT:
    """A copy of ``op``, a deep one where there is a ``memo``.

    What a subclass keeps beside the params is copied with it.
    """
    if is_shared(op):
        return op
    _check_constructor(type(op))
    made = type(op)(**op._params, target=op._explicit_target)
    own = _own(op)
    if memo is not None:
        # Before its attributes are copied: one of them may lead back to the op.
        memo[id(op)] = made
        own = {name: deepcopy(value, memo) for name, value in own.items()}
    made.__dict__.update(own)
    # Its shared sub-ops are the op's, whatever default is set now: noted as there, or dynamo would
    # guard on a difference.
    made._part_keys, made._shared_under = op._part_keys, op._shared_under
    return made


def _check_constructor(cls: type[Op]) -> None:
    """Requires that instances of ``cls`` can be made from their params and target.

    Raises:
        DefinitionError: the constructor does not take one of these by its name.
    """
    parameters = inspect.signature(cls).parameters
    for name in (*(param.name for param in cls.entry.signature.params), "target"):
        if name not in parameters:
            raise DefinitionError(
                f"{cls.__name__}: the constructor must take {name!r} under this name, so that the "
                f"op can be shared, copied and found again by its key"
            )


def reduce(op: Op) -> tuple[Any, ...]:
    """What pickle stores: the class, the params, the target, and what a subclass keeps."""
    return _rebuild, (type(op), op._params, op._explicit_target, is_shared(op)), _own(op) or None


def _rebuild(cls: type[_OpT], params: dict[str, Any], target: str | None, was_shared: bool) -> _OpT:
    return cls.shared(**params, target=target) if was_shared else cls(**params, target=target)


def restore(op: Op, own: dict[str, Any]) -> None:
    """Gives an unpickled op what a subclass kept; a shared op that lives here keeps its own."""
    op.__dict__.update({**own, **_own(op)} if is_shared(op) else own)


def _own(op: Op) -> dict[str, Any]:
    """The attributes that are neither params nor the base class's own."""
    return {
        name: value
        for name, value in op.__dict__.items()
        if name not in op._params and name not in _BASE
    }


_BASE = (
    "_description",
    "_explicit_target",
    "_key",
    "_params",
    "_part_keys",
    "_plans",
    "_shared_under",
    "_state",
)
