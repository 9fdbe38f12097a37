"""What a compiled artefact relies on, as one JSON document that core hashes into instance keys."""

from __future__ import annotations

from typing import Any

from tileops.manifest.expressions import Expression
from tileops.manifest.model import MISSING, Entry, Input, Output, Param, Shape

__all__ = ["contract_document"]


def contract_document(entry: Entry) -> dict[str, Any]:
    """Return the part of an entry that decides what its operators are and what their fakes give.

    Prose, status, workloads, roofline and tolerances are left out: no compiled artefact depends on
    them. The document has only JSON values, always in one order.
    """
    signature = entry.signature
    return {
        "namespace": entry.namespace,
        "name": entry.name,
        "dims": list(signature.dims),
        "dtypes": {name: list(values) for name, values in signature.dtypes.items()},
        "combinations": [dict(combination) for combination in signature.combinations],
        "params": [_param(param) for param in signature.params],
        "inputs": [_input(value) for value in signature.inputs],
        "ints": [
            {"name": value.name, "default": None if value.default is MISSING else value.default}
            for value in signature.ints
        ],
        "outputs": [_output(value) for value in signature.outputs],
        "rules": [
            {"require": rule.require.source, "message": rule.message} for rule in signature.rules
        ],
        "branches": [
            {
                "operator": branch.operator,
                "written": list(branch.written),
                "out": branch.out,
                "omitted": list(branch.omitted),
                "returns": list(branch.returns),
            }
            for branch in entry.branches
        ],
    }


def _param(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "type": param.type,
        "optional": param.optional,
        "choices": None if param.choices is None else list(param.choices),
    }


def _input(value: Input) -> dict[str, Any]:
    return {
        "name": value.name,
        "dtype": value.dtype,
        "shapes": [_shape(shape) for shape in value.shapes],
        "optional": _condition(value.optional),
        "mutated": _condition(value.mutated),
    }


def _output(value: Output) -> dict[str, Any]:
    return {
        "name": value.name,
        "dtype": value.dtype,
        "shape": _shape(value.shape),
        "alias": value.alias,
        "buffer": value.buffer,
        "when": None if value.when is None else value.when.source,
        "device": value.device,
    }


def _shape(shape: Shape) -> list[str]:
    return [str(item) for item in shape]


def _condition(value: bool | Expression) -> bool | str:
    return value if isinstance(value, bool) else value.source
