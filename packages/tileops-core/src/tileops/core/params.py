"""Constructor parameters: checked, brought to their canonical form, and spelt into a key."""

from __future__ import annotations

import ast
import math
import operator
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tileops.core.dtypes import dtype_name
from tileops.core.errors import ParamError
from tileops.manifest import Entry
from tileops.manifest.model import Param

__all__ = [
    "WITHOUT_INDEX",
    "canonical",
    "canonical_params",
    "check_target",
    "read",
    "spell",
    "word",
]


def canonical_params(entry: Entry, values: Mapping[str, Any]) -> dict[str, Any]:
    """The canonical values of ``entry``'s params, in the entry's order.

    Raises:
        ParamError: a value is not of its param's type, or a rule on the params fails.
    """
    found = {
        param.name: canonical(entry.name, param, values[param.name])
        for param in entry.signature.params
    }
    words = {name: word(value) for name, value in found.items()}
    for rule in entry.signature.rules:
        if rule.phase == "construction" and not rule.require.evaluate(words):
            raise ParamError(f"{entry.name}: {rule.message.format_map(words)}")
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
    except OverflowError:
        raise _wrong(op, param, value, " of 64 bits") from None
    except (TypeError, ValueError, AttributeError, RuntimeError):
        raise _wrong(op, param, value) from None
    if param.choices is not None and word(result) not in param.choices:
        raise _wrong(op, param, value)
    return result


def check_target(op: str, target: Any) -> None:
    """Requires that ``target`` be a name or None; whether it exists shows at the first call.

    Raises:
        ParamError: it is something else.
    """
    if target is not None and not (isinstance(target, str) and target):
        raise ParamError(
            f"{op}: target is {target!r}, but it must be the name of a target, or None"
        )


def word(value: Any) -> Any:
    """``value`` as the entry's expressions see it: a dtype or a device by its name."""
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return str(value) if isinstance(value, torch.device) else value


# Inductor's cpp_wrapper puts a key between double quotes without escaping anything.
_PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in "%'\"\\")


def spell(value: Any) -> str:
    """A param's canonical ``value`` as it stands in a key; :func:`read` reads it back.

    The spelling is ASCII and holds no double quote and no backslash: in a string, ``%`` and two
    hexadecimal digits stand for a byte.

    Raises:
        ValueError: the value is not one that a param can have.
    """
    value = word(value)
    if isinstance(value, str):
        return f"'{urllib.parse.quote(value, safe=_PLAIN, errors='surrogatepass')}'"
    if isinstance(value, tuple):
        inner = ", ".join(map(spell, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if type(value) is float and not math.isfinite(value):
        return str(value)  # inf, -inf, nan
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    raise ValueError(f"{value!r} has no canonical spelling")


def read(spelling: str) -> dict[str, Any]:
    """The params, by name, that are spelt as ``name=value, ...`` in a key.

    Raises:
        ValueError: the text is not one that :func:`spell` makes.
    """
    try:
        call = ast.parse(f"f({spelling})", mode="eval").body
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{spelling!r} spells no params") from None
    if not isinstance(call, ast.Call) or call.args or any(w.arg is None for w in call.keywords):
        raise ValueError(f"{spelling!r} spells no params")
    return {str(w.arg): _read(w.value) for w in call.keywords}


def _read(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_read, node.elts))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_read(node.operand)
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    value = ast.literal_eval(node)
    if isinstance(value, str):
        return urllib.parse.unquote(value, errors="surrogatepass")
    return value


def _int(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


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
    # The text itself: str() of a member of an enumeration is its name.
    return str.__str__(value)


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


#: Devices that there is one of: a tensor on "cpu:0" reports "cpu".
WITHOUT_INDEX = {name: torch.device(name) for name in ("cpu", "meta")}


def _device(value: Any) -> torch.device:
    found = torch.device(value)
    return WITHOUT_INDEX.get(found.type, found)


_CANONICAL: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "dtype": _dtype,
    "device": _device,
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


def _wrong(op: str, param: Param, value: Any, more: str = "") -> ParamError:
    needs = _NEEDS[param.type] + more
    if param.choices is not None:
        needs = "one of " + ", ".join(map(repr, param.choices))
    if param.optional:
        needs += ", or None"
    return ParamError(f"{op}: {param.name} is {value!r}, but the signature needs {needs}")
