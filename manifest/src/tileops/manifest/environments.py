"""Which names an expression may read, by where it stands, and of which type each is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tileops.manifest.model import Input, Param, ShapeKind, Signature
from tileops.manifest.typecheck import FLOATS, INT, INTS, PRESENCE, STR, TENSOR, Type

__all__ = ["bound_by", "condition_names", "param_names", "roofline_names", "rule_names"]

_PARAM_TYPES: Mapping[str, Type] = {
    "int": INT,
    "float": Type("float"),
    "bool": Type("bool"),
    "str": STR,
    "dtype": STR,
    "device": STR,
    "shape": INTS,
    "ints": INTS,
    "floats": FLOATS,
}


def param_names(signature: Signature) -> dict[str, Type]:
    """What a composition's counts and conditions read: params."""
    return {param.name: _param_type(param) for param in signature.params}


def condition_names(signature: Signature) -> dict[str, Type]:
    """What effects read: params, and whether inputs are there."""
    return {**param_names(signature), **_tensors(signature, PRESENCE)}


def rule_names(signature: Signature) -> dict[str, Type]:
    """What rules and shapes read: params, dims, call-time numbers, whether inputs are there."""
    names = {**condition_names(signature), **{value.name: INT for value in signature.ints}}
    for name in signature.dims:
        bare = name.removeprefix("*")
        kind = INT if bare == name else INTS
        binders = bound_by(signature, bare)
        if binders and all(value.optional is not False for value in binders):
            guards = frozenset(value.name for value in binders)
            kind = dataclasses.replace(kind, optional=True, guards=guards)
        names[bare] = kind
    return names


def roofline_names(signature: Signature) -> dict[str, Type]:
    """What a roofline reads: what rules do, dtype variables, and the facts of tensors."""
    tensors = _tensors(signature, TENSOR)
    for output in signature.outputs:
        tensors[output.name] = dataclasses.replace(TENSOR, optional=output.when is not None)
    return {**rule_names(signature), **dict.fromkeys(signature.dtypes, STR), **tensors}


def bound_by(signature: Signature, dim: str) -> list[Input]:
    """Return the inputs at which a dim binds: it is an axis of each of their alternatives."""
    return [
        value
        for value in signature.inputs
        if value.shapes
        and all(
            any(
                item.text == dim and item.kind in (ShapeKind.DIM, ShapeKind.VARIADIC)
                for item in shape
            )
            for shape in value.shapes
        )
    ]


def _param_type(param: Param) -> Type:
    choices = param.choices if param.type in ("str", "dtype") else None
    return dataclasses.replace(_PARAM_TYPES[param.type], optional=param.optional, choices=choices)


def _tensors(signature: Signature, kind: Type) -> dict[str, Type]:
    return {
        value.name: dataclasses.replace(kind, optional=value.optional is not False)
        for value in signature.inputs
    }
