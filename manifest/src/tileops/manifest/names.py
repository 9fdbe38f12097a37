"""How an op's class, its file and its operators are named after each other."""

from __future__ import annotations

import re

__all__ = ["class_key", "operator_name", "snake_case", "stem_key"]

_ACRONYM = re.compile(r"([A-Z]+)([A-Z][a-z])")
_WORD = re.compile(r"([a-z0-9])([A-Z])")


def snake_case(class_name: str) -> str:
    """Return the class name in snake case, a trailing ``Op`` dropped.

    >>> snake_case("RMSNormFwdOp")
    'rms_norm_fwd'
    """
    stem = _without_op(class_name)
    return _WORD.sub(r"\1_\2", _ACRONYM.sub(r"\1_\2", stem)).lower()


def operator_name(family: str, snake: str) -> str:
    """Return ``<family>_<snake>``, the family once where ``snake`` starts with its whole words.

    >>> operator_name("norm", "rms_norm_fwd"), operator_name("norm", "norm_stats")
    ('norm_rms_norm_fwd', 'norm_stats')
    """
    if snake == family or snake.startswith(f"{family}_"):
        return snake
    return f"{family}_{snake}"


def class_key(class_name: str) -> str:
    """Return what a class name has in common with its file name, however it is split into words."""
    return _without_op(class_name).lower()


def stem_key(snake: str) -> str:
    """Return what a file name (or ``snake``) has in common with its class name."""
    return snake.replace("_", "")


def _without_op(class_name: str) -> str:
    return class_name[:-2] if class_name.endswith("Op") and class_name != "Op" else class_name
