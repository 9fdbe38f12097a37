"""TileOPs 0.1.0, which owns the same import name: only in an interpreter without this project."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

DISTRIBUTION = "tileops"
MODULE = "tileops.norm"
VERSION = "0.1.0"

FAMILIES = ("norm", "attention", "rope")

RENAMED = {"x": "input"}

# Its op of this name computes something else: the gate is applied to y, and nothing is added.
DIFFERENT = ("AdaLayerNormZeroFwdOp",)


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Callable[..., Any] | None:
    """Its op of the same name, where that takes what the call gives.

    What its constructor and its call take is asked of the class that runs. A param that its
    constructor has not must ask for nothing; ``normalized_shape`` may be missing where one axis is
    normalized. It calls ``x`` ``input`` in some ops. Modulations of a sample are expanded to those
    of its tokens, which are all that it takes.
    """
    modules = (importlib.import_module(f"tileops.{family}") for family in FAMILIES)
    cls = next((found for one in modules if (found := getattr(one, op, None)) is not None), None)
    if cls is None or op in DIFFERENT:
        return None
    taken = inspect.signature(cls.__init__).parameters
    for name, value in params.items():
        one_axis = name == "normalized_shape" and len(value) == 1
        if name not in taken and value and not one_axis:
            return None
    called = inspect.signature(cls.forward).parameters
    names = {name: name if name in called else RENAMED.get(name, name) for name in arguments}
    if not called.keys() >= set(names.values()):
        return None
    made = cls(**{name: value for name, value in params.items() if name in taken})
    by_token = op == "AdaLayerNormFwdOp"

    def call(**given: Any) -> Any:
        if by_token:
            given = {name: _of_tokens(value, given["x"]) for name, value in given.items()}
        return made(**{names[name]: value for name, value in given.items()})

    return call


def _of_tokens(value: Any, x: Any) -> Any:
    """A view of x's shape of what has a row for each sample."""
    return value[:, None].expand(x.shape) if value.ndim < x.ndim else value
