"""Keys, and the instances behind them.

A key is the string through which an operator finds its instance:
``<Class>@<digest><params>#<n>``, for example
``RMSNormFwdOp@85c6077bf9fa(normalized_shape=(4096,), eps=None)#0``. What stands before ``#`` is the
*description* of the specialization, the same in every process; ``n`` counts its instances in this
process and is never given twice. So a second process that builds the same ops in the same order
gets the same keys, and finds what PyTorch's compilers cached for them; and no instance ever meets
an artefact that was made for another.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tileops.core.errors import KeyLookupError
from tileops.core.locks import ForkSafeLock
from tileops.core.params import read, spell

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = [
    "adopt",
    "describe",
    "exported",
    "find",
    "find_for_trace",
    "known_class",
    "live",
    "not_traced",
]


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """How to make an instance again: outlives an instance that was traced."""

    cls: type[Op]
    params: dict[str, Any]
    target: str | None


# Reentrant: reviving an instance constructs it, and a constructor adopts a key. Never taken while
# an object is collected, which may happen under any lock.
_lock = ForkSafeLock()
_reviving = threading.local()
_next: dict[str, int] = {}
# A plain dict of references: WeakValueDictionary costs a compiled call three times as much.
live: dict[str, weakref.ref[Op]] = {}
"""The instances by their keys; for the generated source, which looks keys up itself."""
_held: dict[str, Op] = {}
_recipes: dict[str, _Recipe] = {}
_classes: dict[str, type[Op]] = {}


def known_class(identity: str, cls: type[Op]) -> None:
    """Records the class that keys beginning with ``identity`` (``Class@digest``) belong to."""
    _classes[identity] = cls


def describe(identity: str, params: dict[str, Any]) -> str:
    """The description of a specialization: equal for equal canonical params, in every process."""
    inner = ", ".join(f"{name}={spell(value)}" for name, value in params.items())
    return f"{identity}({inner})"


def adopt(instance: Op, description: str) -> str:
    """Gives ``instance`` a key that no instance had before, and records it while it lives."""
    key: str | None = getattr(_reviving, "key", None)
    # A constructor may build other ops before it comes here for itself.
    if key is not None and _split(key)[0] == description:
        _reviving.key = None
    else:
        with _lock:
            number = _next.get(description, 0)
            _next[description] = number + 1
        key = f"{description}#{number}"
    live[key] = weakref.ref(instance, functools.partial(_forget, key))
    return key


_MADE_IN_CODE = (
    "an op is made inside compiled code, and each call would make another with a key of its own; "
    "make it, or ask for the shared one, once outside: where the layer is built"
)


def not_traced(function: Callable[..., Any], reason: str = _MADE_IN_CODE) -> None:
    """Lets dynamo say why ``function`` cannot be in compiled code, where it meets it there."""
    # As torch.compiler.disable(function, reason=...), without importing dynamo: that takes as
    # long as importing torch does.
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]


not_traced(adopt)


def _split(key: str) -> tuple[str, int | None]:
    """A key's description, and its number where it has one."""
    description, paren, tail = key.rpartition(")")
    if tail[:1] == "#" and tail[1:].isdecimal():
        return description + paren, int(tail[1:])
    return key, None


def _forget(
    key: str,
    reference: weakref.ref[Op],
    # Bound here: where the interpreter ends, an op may outlive this module's globals.
    live: dict[str, weakref.ref[Op]] = live,
) -> None:
    # Another thread may have revived the key since this instance was collected.
    if live.get(key) is reference:
        del live[key]


def exported(description: str, target: str | None) -> str:
    """The key that an exported program holds: the description, which every process resolves.

    A number would bind a loaded program to whatever instance has that number there.
    """
    if target is not None:
        op = description.partition("@")[0]
        warnings.warn(
            f"{op}: the exported program does not hold target={target!r}; where it is loaded, the "
            f"process default or the device chooses the target",
            stacklevel=2,
        )
    return description


# As torch.compiler.assume_constant_result, again without importing dynamo.
exported._dynamo_marked_constant = True  # type: ignore[attr-defined]


def find(key: str) -> Op:
    """The instance behind ``key``, made again from its recipe or its description where it is gone.

    Raises:
        KeyLookupError: the key describes no op that this process has imported.
    """
    reference = live.get(key)
    instance = reference() if reference is not None else None
    return instance if instance is not None else _revive(key)


def find_for_trace(key: str) -> Op:
    """As :func:`find`, for a compiler: what it traces stays callable after the instance is gone.

    A shared instance stays itself, so that a model that is loaded anew asks for the same op, finds
    the same key, and recompiles nothing.
    """
    instance = find(key)
    if key not in _recipes:
        from tileops.core.sharing import is_shared

        if is_shared(instance):
            _held[key] = instance
        _recipes[key] = _Recipe(type(instance), instance._params, instance._explicit_target)
    return instance


def _revive(key: str) -> Op:
    with _lock:
        reference = live.get(key)
        instance = reference() if reference is not None else _held.get(key)
        if instance is None:
            recipe = _recipes.get(key) or _read(key)
            description, number = _split(key)
            if number is not None:
                # The key came from another process: no instance built here may get it later.
                _next[description] = max(_next.get(description, 0), number + 1)
            outer = getattr(_reviving, "key", None)
            _reviving.key = key
            try:
                instance = recipe.cls(**recipe.params, target=recipe.target)
            finally:
                _reviving.key = outer
            if instance._key != key:
                raise _no_key(recipe.cls, key)
            _held[key] = instance
        return instance


def _read(key: str) -> _Recipe:
    description = _split(key)[0]
    head, _, rest = description.partition("(")
    identity = head.partition("#")[0]
    cls = _classes.get(identity)
    if cls is None:
        name, _, digest = identity.partition("@")
        others = [other for other in _classes if other.partition("@")[0] == name]
        if others:
            raise KeyLookupError(
                f"{name}: the program was made for another version of the op (digest {digest}, "
                f"installed {', '.join(o.partition('@')[2] for o in others)}); compile or export "
                f"it again with the installed version"
            )
        raise KeyLookupError(
            f"{name}: no op of this name is imported in this process; import the family that "
            f"holds it before running a program that was compiled or exported elsewhere"
        )
    try:
        params = read(rest[:-1]) if rest.endswith(")") else None
    except ValueError:
        params = None
    if params is None or list(params) != [param.name for param in cls.entry.signature.params]:
        raise _no_key(cls, key)
    return _Recipe(cls, params, None)


def _no_key(cls: type[Op], key: str) -> KeyLookupError:
    return KeyLookupError(
        f"{cls.__name__}: the key {key!r} is none that an op has; keys are made by tileops-core "
        f"and never written by hand"
    )
