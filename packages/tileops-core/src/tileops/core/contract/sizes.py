"""The same call with another number of rows: none, or a size that a graph leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tileops.core.contract.check import NotApplicable
from tileops.core.contract.subject import Subject
from tileops.core.op import Op
from tileops.manifest.model import Shape, ShapeKind

__all__ = ["mark", "rows_of", "with_rows"]

Axes = Mapping[str, tuple[int, ...]]
"""By tensor, the axes that have the rows' dim."""


def rows_of(subject: Subject) -> Axes:
    """Where the case's tensors have its rows.

    Raises:
        NotApplicable: the case has none, or they cannot be told from the entry alone.
    """
    case = subject.case
    arguments = subject.inputs()
    if not subject.has_tensors:
        raise NotApplicable("the op has no call-time tensor")
    shapes = _shapes(subject.make(), arguments)
    dim = case.rows or _first_dim(shapes)
    if dim is None:
        raise NotApplicable("every size of the case's first tensor is fixed by a param")
    axes = {name: _axes_of(dim, items) for name, items in shapes.items()}
    axes = {name: found for name, found in axes.items() if found}
    if not axes:
        raise NotApplicable(f"no tensor of the case has an axis of the dim {dim}")
    if case.sized is None and case.rows is None:
        _require_plain(dim, shapes, axes, arguments)
    return axes


def with_rows(subject: Subject, axes: Axes, rows: int, draw: int = 0) -> dict[str, Any]:
    """The call's arguments with ``rows`` rows: the case's own, or its rows left out and repeated.

    Raises:
        NotApplicable: the case has no row that could be repeated.
    """
    if subject.case.sized is not None:
        return subject.sized(rows, draw)
    arguments = subject.inputs(draw)
    for name, places in axes.items():
        tensor = arguments[name]
        for axis in places:
            if rows and not tensor.shape[axis]:
                raise NotApplicable("the case itself has no rows")
            index = torch.arange(rows, device=tensor.device) % max(tensor.shape[axis], 1)
            tensor = tensor.index_select(axis, index)
        arguments[name] = tensor.contiguous()
    return arguments


def mark(arguments: Mapping[str, Any], axes: Axes) -> None:
    """Tells dynamo that the rows' number is dynamic."""
    for name, places in axes.items():
        for axis in places:
            torch._dynamo.mark_dynamic(arguments[name], axis)


def _shapes(op: Op, arguments: Mapping[str, Any]) -> dict[str, list[tuple[Any, int]]]:
    """By tensor of the call, the items of its shape, each with its first axis."""
    found = {}
    for spec in type(op).entry.signature.inputs:
        tensor = arguments.get(spec.name)
        if isinstance(tensor, torch.Tensor):
            for shape in spec.shapes:
                items = _items(op, shape, tensor.dim())
                if items is not None:
                    found[spec.name] = items
                    break
    for output in type(op).entry.signature.outputs:
        buffer = arguments.get("out") if output.buffer is not None else None
        if isinstance(buffer, torch.Tensor):
            found["out"] = _items(op, output.shape, buffer.dim()) or []
    return found


def _items(op: Op, shape: Shape, rank: int) -> list[tuple[Any, int]] | None:
    """The items with their first axes, without those of no axis; None where ``rank`` is another."""
    lengths = []
    for item in shape:
        if item.kind is ShapeKind.PARAM_AXES:
            lengths.append(len(getattr(op, item.text)))
        else:
            lengths.append(-1 if item.kind is ShapeKind.VARIADIC else 1)
    rest = rank - sum(length for length in lengths if length > 0)
    if rest < 0 or (rest and -1 not in lengths):
        return None
    items, at = [], 0
    for item, length in zip(shape, lengths, strict=True):
        length = rest if length < 0 else length
        if length:
            items.append((item, at))
        at += length
    return items


def _first_dim(shapes: Mapping[str, list[tuple[Any, int]]]) -> str | None:
    for items in shapes.values():
        for item, _ in items:
            if item.kind in (ShapeKind.DIM, ShapeKind.VARIADIC):
                return str(item.text)
        return None
    return None


def _axes_of(dim: str, items: list[tuple[Any, int]]) -> tuple[int, ...]:
    kinds = (ShapeKind.DIM, ShapeKind.VARIADIC)
    return tuple(at for item, at in items if item.kind in kinds and item.text == dim)


def _require_plain(
    dim: str,
    shapes: Mapping[str, list[tuple[Any, int]]],
    axes: Axes,
    arguments: Mapping[str, Any],
) -> None:
    """Requires that nothing but the sizes of ``axes`` depend on the number of rows."""
    mend = f"give the case rows={dim!r}, or sized="
    for name, items in shapes.items():
        for item, _ in items:
            if item.kind is ShapeKind.EXPRESSION and dim in item.expression.names:
                raise NotApplicable(f"{name} has a size that is {item.text}; {mend}")
        tensor = arguments[name]
        # Such as lengths or page tables, whose values may say how many rows there are.
        if tensor.dim() and not (tensor.is_floating_point() or tensor.is_complex()):
            raise NotApplicable(f"the values of {name} may depend on the number of rows; {mend}")
