"""The fixed words of the entry language: dtypes, kinds of params, names that are taken."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Final

__all__ = ["FLOATING", "INTEGRAL", "ITEMSIZE", "PARAM_TYPES", "RESERVED", "is_name"]

_FLOATING_SIZES: Final[Mapping[str, int]] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
_INTEGRAL_SIZES: Final[Mapping[str, int]] = {
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
}

ITEMSIZE: Final[Mapping[str, int]] = {**_FLOATING_SIZES, **_INTEGRAL_SIZES, "bool": 1}
"""Bytes of one element of each dtype, by PyTorch's name of it."""
FLOATING: Final = frozenset(_FLOATING_SIZES)
INTEGRAL: Final = frozenset(_INTEGRAL_SIZES)

PARAM_TYPES: Final = ("int", "float", "bool", "str", "dtype", "device", "shape", "ints", "floats")

RESERVED: Final = frozenset({"self", "cls", "out", "key", "target", "forward", "torch"})
"""Names that the generated constructor, ``forward`` or operator use themselves."""


def is_name(text: str) -> bool:
    """Whether ``text`` can name a dim, a param or a tensor in generated Python."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text[0] != "_"
