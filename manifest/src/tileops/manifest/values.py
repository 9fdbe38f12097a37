"""What values a param takes, and their canonical form."""

from __future__ import annotations

from typing import Any

from tileops.manifest.model import Param
from tileops.manifest.vocabulary import ITEMSIZE

__all__ = ["canonical"]


def canonical(param: Param, value: Any) -> Any:
    """Return the canonical form of a param's value as TOML and JSON can hold it.

    A shape may be given as an int; sequences become tuples; an int is a float where one is wanted.

    :raises ValueError: the param does not take it; the message says what it takes.
    """
    if value is None:
        if param.optional:
            return None
        raise ValueError(f"{param.name} is {_titled(param)}, and never None")
    result = _converted(param, value)
    if param.choices is not None and result not in param.choices:
        raise ValueError(f"{param.name} is one of {', '.join(map(repr, param.choices))}")
    return result


def _converted(param: Param, value: Any) -> Any:
    kind = param.type
    plain_int = isinstance(value, int) and not isinstance(value, bool)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and plain_int:
        return value
    if kind == "float" and (plain_int or isinstance(value, float)):
        return float(value)
    if kind in ("str", "device") and isinstance(value, str):
        return value
    if kind == "dtype" and isinstance(value, str) and value in ITEMSIZE:
        return value
    if kind == "shape" and plain_int and value >= 0:
        return (value,)
    if kind in ("shape", "ints", "floats") and isinstance(value, (list, tuple)):
        whole = all(isinstance(item, int) and not isinstance(item, bool) for item in value)
        if kind == "shape" and whole and all(item >= 0 for item in value):
            return tuple(value)
        if kind == "ints" and whole:
            return tuple(value)
        if kind == "floats" and all(type(item) in (int, float) for item in value):
            return tuple(map(float, value))
    raise ValueError(f"{param.name} is {_titled(param)}")


def _titled(param: Param) -> str:
    title = {
        "int": "an int",
        "float": "a float",
        "bool": "a bool",
        "str": "a string",
        "dtype": "a dtype by PyTorch's name",
        "device": "a device's name",
        "shape": "an int or ints of at least 0",
        "ints": "ints",
        "floats": "floats",
    }[param.type]
    return f"{title} or None" if param.optional else title
