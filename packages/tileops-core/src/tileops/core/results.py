"""Holds what ``forward`` returned to the signature.

A compiler lays out memory by what the signature says. A result with other strides, or one that
shares memory with an input, with another result, or with what an earlier call returned, is right
in eager and silently wrong once a compiler reuses buffers; so it is refused in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tileops.core.errors import ResultError

if TYPE_CHECKING:
    from tileops.core.op import Op
    from tileops.core.serve import OutputSpec

__all__ = ["enforce"]


def enforce(
    op: Op,
    target: str,
    specs: Mapping[str, OutputSpec],
    buffers: Mapping[str, torch.Tensor],
    result: Any,
    arguments: Sequence[Any],
) -> dict[str, torch.Tensor]:
    """The outputs by name, each as the signature declares it.

    Raises:
        ResultError: a result is missing, surplus, of another shape, dtype, device or layout, or
            shares memory with an argument or another result.
    """
    found = _by_name(op, target, list(specs), result)
    storages = {
        id_: name
        for name, id_ in (
            (f"the argument {position}", _storage(item))
            for position, item in enumerate(arguments)
            if isinstance(item, torch.Tensor) and item.numel()
        )
    }
    for name, tensor in found.items():
        buffer = buffers.get(name)
        if buffer is not None:
            if tensor is not buffer:
                raise _wrong(op, target, name, "is a new tensor", "the caller's own, filled")
            continue
        spec = specs[name]
        if tuple(tensor.shape) != tuple(spec.shape):
            raise _wrong(op, target, name, f"has shape {list(tensor.shape)}", str(list(spec.shape)))
        if tensor.dtype != spec.dtype:
            raise _wrong(op, target, name, f"has dtype {tensor.dtype}", str(spec.dtype))
        if tensor.device != spec.device:
            raise _wrong(op, target, name, f"is on {tensor.device}", str(spec.device))
        if tensor.layout is not torch.strided or not tensor.is_contiguous():
            strides = list(tensor.stride()) if tensor.layout is torch.strided else tensor.layout
            raise _wrong(op, target, name, f"has strides {strides}", "a contiguous tensor")
        if tensor.is_neg() or tensor.is_conj():
            raise _wrong(op, target, name, "is a lazily negated view", "its values in memory")
        if tensor.numel():
            owner = storages.setdefault(_storage(tensor), f"the output {name!r}")
            if owner != f"the output {name!r}":
                raise _wrong(op, target, name, f"shares memory with {owner}", "memory of its own")
    return found


def _by_name(op: Op, target: str, names: list[str], result: Any) -> dict[str, torch.Tensor]:
    if not names:
        items: tuple[Any, ...] = () if result is None else (result,)
    elif len(names) == 1:
        items = (result,)
    else:
        items = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(items) != len(names):
        raise ResultError(
            f"{type(op).__name__}: the target {target!r} returned {len(items)} results, but the "
            f"signature has {len(names)} ({', '.join(names) or 'none'})"
        )
    for name, item in zip(names, items, strict=True):
        if not isinstance(item, torch.Tensor):
            raise _wrong(op, target, name, f"is of type {type(item).__name__}", "a Tensor")
    return dict(zip(names, items, strict=True))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _wrong(op: Op, target: str, name: str, came: str, needs: str) -> ResultError:
    return ResultError(
        f"{type(op).__name__}: the result {name!r} of the target {target!r} {came}, but the "
        f"signature needs {needs}; mend the target"
    )
