"""The least work of one call, by the entry's roofline."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import torch

from tileops.core.checks import not_a_tensor
from tileops.core.dtypes import dtype_name
from tileops.manifest.calls import Call, least_work
from tileops.manifest.model import Shape, ShapeKind
from tileops.manifest.work import TensorFacts

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = ["roofline"]


def roofline(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, int]:
    """Flops and bytes of ``op(*args, **kwargs)``, which is checked and not run.

    Raises:
        ArgumentError: the call is not a valid one.
    """
    entry = type(op).entry
    bound = inspect.signature(op.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    for spec in entry.signature.inputs:
        tensor = given[spec.name]
        if not isinstance(tensor, torch.Tensor) and not (tensor is None and spec.optional):
            raise not_a_tensor(type(op).__name__, spec.name, tensor, bool(spec.optional))
    specs = op._infer(*given.values())
    names: dict[str, Any] = dict(op._params)
    names.update(dict.fromkeys((name.lstrip("*") for name in entry.signature.dims), None))
    inputs: dict[str, TensorFacts | None] = {}
    for spec in entry.signature.inputs:
        tensor = given[spec.name]
        inputs[spec.name] = None if tensor is None else _facts(tensor)
        names[spec.name] = None if tensor is None else spec.name
        if tensor is not None:
            names.setdefault(spec.dtype, dtype_name(tensor.dtype))
            _bind(names, _alternative(spec.shapes, tensor, names), tuple(tensor.shape))
    ints = {number.name: given[number.name] for number in entry.signature.ints}
    names.update(ints)
    outputs = {
        output.name: TensorFacts(tuple(found[0]), dtype_name(found[1]))
        for output, found in zip(entry.signature.outputs, specs, strict=True)
        if found is not None
    }
    return least_work(entry, Call(op._params, inputs, ints, outputs, names))


def _facts(tensor: torch.Tensor) -> TensorFacts:
    values = None if tensor.is_floating_point() else _Values(tensor)
    return TensorFacts(tuple(tensor.shape), dtype_name(tensor.dtype), values)


def _rank(shape: Shape, names: Mapping[str, Any]) -> tuple[int, str | None]:
    """The axes that are settled, and the variadic that is not."""
    settled, free = 0, None
    for item in shape:
        if item.kind not in (ShapeKind.VARIADIC, ShapeKind.PARAM_AXES):
            settled += 1
        elif names.get(item.text) is None:
            free = item.text
        else:
            settled += len(names[item.text])
    return settled, free


def _alternative(shapes: Sequence[Shape], tensor: torch.Tensor, names: Mapping[str, Any]) -> Shape:
    for shape in shapes:
        settled, free = _rank(shape, names)
        if tensor.dim() == settled or (free is not None and tensor.dim() >= settled):
            return shape
    return shapes[0]


def _bind(names: dict[str, Any], shape: Shape, sizes: tuple[int, ...]) -> None:
    """Gives the dims of ``shape`` that nothing has bound yet their sizes."""
    settled, free = _rank(shape, names)
    at = 0
    for item in shape:
        if item.kind is ShapeKind.VARIADIC and item.text == free:
            names[item.text] = sizes[at : at + len(sizes) - settled]
        if item.kind in (ShapeKind.VARIADIC, ShapeKind.PARAM_AXES):
            at += len(names[item.text])
            continue
        if item.kind is ShapeKind.DIM and names.get(item.text) is None:
            names[item.text] = sizes[at]
        at += 1


class _Values(Sequence[int]):
    """A tensor's values, fetched from the device only where a roofline reads them."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._found: list[int] | None = None

    def _list(self) -> list[int]:
        if self._found is None:
            self._found = [int(value) for value in self._tensor.flatten().tolist()]
        return self._found

    def __len__(self) -> int:
        return math.prod(self._tensor.shape)

    def __iter__(self) -> Iterator[int]:
        return iter(self._list())

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._list()[index]
