"""Holds what ``forward`` returned to the signature.

A compiler lays out memory by what the signature says. A result with other strides, or one that
shares memory with an input, with another result, or with what an earlier call returned, is right
in eager and silently wrong once a compiler reuses buffers; so it is refused in both.

A workspace that a target fills anew at each call is told by its storage: PyTorch's object behind
it is not freed while a weak reference is held, so a call that gets the same one again got memory
that never went away. The latest results of each instance are remembered so, and the latest of the
process, since a workspace may serve several instances. What is not seen: a rotation of more than
``REMEMBERED`` workspaces, and one that is wrapped into a new storage at each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tileops.core.dtypes import dtype_name
from tileops.core.errors import ResultError

if TYPE_CHECKING:
    from tileops.core.op import Op
    from tileops.core.serve import OutputSpec

__all__ = ["REMEMBERED", "enforce"]

REMEMBERED = 16
"""How many storages of earlier results an instance, and the process, remembers."""

_latest: dict[int, StorageWeakRef] = {}


def enforce(
    op: Op,
    target: str,
    specs: Mapping[str, OutputSpec],
    buffers: Mapping[str, torch.Tensor],
    result: Any,
    arguments: Mapping[str, Any],
    allocated: Sequence[torch.Tensor] = (),
    *,
    nested: bool = False,
) -> dict[str, torch.Tensor]:
    """The outputs by name, each as the signature declares it.

    ``buffers`` are the tensors that outputs must be, ``arguments`` the call's own, and
    ``allocated`` what core allocated for this call: no memory of a target. ``nested`` says that
    the call is part of another op's, which may hand on what this one returns.

    Raises:
        ResultError: a result is missing, surplus, of another shape, dtype, device or layout, or
            shares memory with an argument, with another result, or with that of an earlier call.
    """
    found = _by_name(op, target, list(specs), result)
    fresh = [name for name in found if name not in buffers]
    for name, tensor in found.items():
        if name in fresh:
            _check(op, target, name, tensor, specs[name])
        elif tensor is not buffers[name]:
            raise _wrong(op, target, name, "is a new tensor", "the caller's own, filled")
    held = [
        (f"the argument {name!r}", _memory(item))
        for name, item in arguments.items()
        if isinstance(item, torch.Tensor) and item.numel()
    ]
    for name in fresh:
        tensor = found[name]
        if not tensor.numel():
            continue
        start, end = _memory(tensor)
        for owner, (first, last) in held:
            if start < last and first < end:
                raise _wrong(op, target, name, f"shares memory with {owner}", "memory of its own")
        held.append((f"the result {name!r}", (start, end)))
    ours = [
        (name, StorageWeakRef(found[name].untyped_storage()))
        for name in fresh
        if found[name].numel() and not any(found[name] is tensor for tensor in allocated)
    ]
    memories = (op._state.returned,) if nested else (op._state.returned, _latest)
    for name, storage in ours:
        if any(storage.cdata in remembered for remembered in memories):
            raise _wrong(
                op,
                target,
                name,
                "has the memory that an earlier call returned",
                "memory of its own",
            )
    for remembered in memories:
        for _, storage in ours:
            remembered[storage.cdata] = storage
        while len(remembered) > REMEMBERED:
            # All at once, and not an iterator: another thread may be at it too.
            oldest, *_ = remembered
            remembered.pop(oldest, None)
    return found


def _check(op: Op, target: str, name: str, tensor: torch.Tensor, spec: OutputSpec) -> None:
    """Holds one result to what the signature says of it, but for the memory that it lies in."""
    if tensor.is_nested:
        raise _wrong(op, target, name, "is a nested tensor", "a plain one")
    if tuple(tensor.shape) != tuple(spec.shape):
        raise _wrong(op, target, name, f"has shape {list(tensor.shape)}", str(list(spec.shape)))
    if tensor.dtype != spec.dtype:
        raise _wrong(
            op, target, name, f"has dtype {dtype_name(tensor.dtype)}", dtype_name(spec.dtype)
        )
    if tensor.device != spec.device:
        raise _wrong(op, target, name, f"is on {tensor.device}", str(spec.device))
    if tensor.layout is not torch.strided:
        raise _wrong(op, target, name, f"has the layout {tensor.layout}", "torch.strided")
    if not tensor.is_contiguous():
        strides = list(tensor.stride())
        raise _wrong(op, target, name, f"has strides {strides}", "a contiguous tensor")
    if tensor.is_neg() or tensor.is_conj():
        raise _wrong(op, target, name, "is a lazily negated view", "its values in memory")
    if tensor.requires_grad:
        raise _wrong(op, target, name, "requires grad", "a tensor without a gradient")


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


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    """Where the tensor's whole storage lies: what a compiler takes for one buffer."""
    storage = tensor.untyped_storage()
    start = int(storage.data_ptr())
    return start, start + int(storage.nbytes())


def _wrong(op: Op, target: str, name: str, came: str, needs: str) -> ResultError:
    return ResultError(
        f"{type(op).__name__}: the result {name!r} of the target {target!r} {came}, but the "
        f"signature needs {needs}; mend the target"
    )
