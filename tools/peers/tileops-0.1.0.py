"""TileOPs 0.1.0, which owns the same import name: only in an interpreter without this project."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

DISTRIBUTION = "tileops"
MODULE = "tileops.norm"
VERSION = "0.1.0"

FAMILIES = ("norm", "attention", "rope")


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Callable[..., Any] | None:
    """Its op of the same name, constructed with the same params.

    Params that it may not have are left out where they ask for nothing. What it raises, here or
    when it is called with the same arguments by name, is in the report.
    """
    for family in FAMILIES:
        cls = getattr(importlib.import_module(f"tileops.{family}"), op, None)
        if cls is not None:
            made: Callable[..., Any]
            try:
                made = cls(**params)
            except TypeError:
                asking = {name: value for name, value in params.items() if value or name == "eps"}
                if asking == params:
                    raise
                made = cls(**asking)
            return made
    return None
