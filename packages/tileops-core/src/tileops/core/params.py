"""Constructor parameters: checked, brought to their canonical form, and spelt into a key."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tileops.core.errors import ParamError
from tileops.manifest import Entry
from tileops.manifest.model import Param

__all__ = ["canonical", "canonical_params", "spell"]


def canonical_params(entry: Entry, values: Mapping[str, Any]) -> dict[str, Any]:
    """The canonical values of ``entry``'s params, in the entry's order.

    Raises:
        ParamError: a value is not of its param's type, or a rule on the params fails.
    """
    found = {
        param.name: canonical(entry.name, param, values[param.name])
        for param in entry.signature.params
    }
    for rule in entry.signature.rules:
        if rule.phase == "construction" and not rule.require.evaluate(found):
            raise ParamError(f"{entry.name}: {rule.message.format_map(found)}")
    return found


def canonical(op: str, param: Param, value: Any) -> Any:
    """``value`` in the canonical form of ``param``: ``4096`` becomes ``(4096,)`` for a shape.

    Raises:
        ParamError: the value is not of the param's type or not among its choices.
    """
    if value is None:
        if param.optional:
            return None
        raise _wrong(op, param, value)
    try:
        result = _CANONICAL[param.type](value)
    except (TypeError, ValueError, OverflowError, AttributeError, RuntimeError):
        raise _wrong(op, param, value) from None
    if param.choices is not None and result not in param.choices:
        raise _wrong(op, param, value)
    return result


def spell(value: Any) -> str:
    """``value`` as it stands in a key; :func:`ast.literal_eval` reads it back.

    Raises:
        ValueError: the value has no canonical spelling.
    """
    if isinstance(value, torch.dtype):
        return repr(str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return repr(str(value))
    if isinstance(value, tuple):
        inner = ", ".join(map(spell, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    # An infinity or NaN has no literal that could be read back.
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    raise ValueError(f"{value!r} has no canonical spelling")


def _int(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _float(value: Any) -> float:
    if isinstance(value, (bool, str, bytes)):
        raise TypeError
    return float(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _ints(value: Any) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)):
        raise TypeError
    return tuple(_int(item) for item in value)


def _floats(value: Any) -> tuple[float, ...]:
    if isinstance(value, (str, bytes)):
        raise TypeError
    return tuple(_float(item) for item in value)


def _shape(value: Any) -> tuple[int, ...]:
    # As in PyTorch's own norms, an int stands for a shape of one axis.
    axes = (_int(value),) if hasattr(value, "__index__") else _ints(value)
    if any(size < 0 for size in axes):
        raise ValueError
    return axes


def _dtype(value: Any) -> torch.dtype:
    found = getattr(torch, value) if isinstance(value, str) else value
    if not isinstance(found, torch.dtype):
        raise TypeError
    return found


_CANONICAL: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "dtype": _dtype,
    "device": torch.device,
    "shape": _shape,
    "ints": _ints,
    "floats": _floats,
}

_NEEDS = {
    "int": "an int",
    "float": "a float",
    "bool": "a bool",
    "str": "a str",
    "dtype": "a torch.dtype",
    "device": "a torch.device",
    "shape": "an int or a sequence of ints, none negative",
    "ints": "a sequence of ints",
    "floats": "a sequence of floats",
}


def _wrong(op: str, param: Param, value: Any) -> ParamError:
    needs = _NEEDS[param.type]
    if param.choices is not None:
        needs = "one of " + ", ".join(map(repr, param.choices))
    if param.optional:
        needs += ", or None"
    return ParamError(f"{op}: {param.name} is {value!r}, but the signature needs {needs}")
