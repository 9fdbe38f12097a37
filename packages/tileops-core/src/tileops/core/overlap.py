"""Refuses calls whose written tensors share memory, or may not be written.

What such a call gives depends on the order in which a kernel happens to write; and a compiler may
have cloned one of the tensors, so that it gives one thing eager and another compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from tileops.core.errors import ArgumentError

__all__ = ["refuse_inference", "refuse_overlap"]


def refuse_overlap(
    op: str, written: Sequence[str], tensors: Sequence[tuple[str, torch.Tensor | None]]
) -> None:
    """Requires that no written tensor share memory with another argument or with itself.

    Views of one tensor that have no element in common are welcome, also where they interleave, as
    the columns of a fused projection do.

    Raises:
        ArgumentError: two arguments overlap, or a written one addresses an element twice.
    """
    present = {name: tensor for name, tensor in tensors if tensor is not None}
    for number, name in enumerate(written):
        target = present[name]
        if _overlaps_itself(target):
            raise ArgumentError(
                f"{op}: {name} is written, and several of its elements share one memory location "
                f"(strides {list(target.stride())}); pass a tensor that owns its elements, such "
                f"as {name}.contiguous()"
            )
        for other, tensor in present.items():
            if other == name or other in written[:number]:
                continue
            if not _apart(target, tensor):
                raise ArgumentError(
                    f"{op}: {name} is written and shares memory with {other}; pass tensors that "
                    f"do not overlap, such as {other}.clone()"
                )


def refuse_inference(op: str, written: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
    """Requires of written tensors that were made in inference mode that the call be in it too.

    PyTorch's own operators ask this after they have written. A kernel would not ask at all, so
    that one target wrote what another refuses.

    Raises:
        ArgumentError: one was, and the call is not.
    """
    if torch.is_inference_mode_enabled():
        return
    for name, tensor in zip(written, tensors, strict=True):
        if tensor.is_inference():
            raise ArgumentError(
                f"{op}: {name} is written and was made in inference mode, so that it may be "
                f"written there only; call the op under torch.inference_mode(), or pass "
                f"{name}.clone()"
            )


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    dims = list(zip(tensor.stride(), tensor.shape, strict=True))
    if not all(isinstance(stride, int) and isinstance(size, int) for stride, size in dims):
        # A comparison would tie the graph to these sizes; the body asks again.
        return torch._debug_has_internal_overlap(tensor) == 1
    if any(size == 0 for _, size in dims):
        return False
    # Every view that slicing, stepping, selecting or permuting makes passes: each stride steps
    # over all that the smaller ones reach.
    reach = 0
    for stride, size in sorted(dims):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether no element of one is shown to lie in memory of the other."""
    if any(isinstance(size, int) and size == 0 for size in (*a.shape, *b.shape)):
        return True
    if a is b:
        return False
    distance: Any
    if torch._C._overlaps(a, b):
        # Of one storage: PyTorch asks no further than that.
        distance = _offset(b) - _offset(a)
    elif _has_memory(a) and _has_memory(b):
        # Two storages may stand for the same memory, as after a round trip through NumPy.
        distance = b.data_ptr() - a.data_ptr()
    else:
        return True
    if any(_apart_modulo(a, b, distance, period) for period in _periods(a, b)):
        return True
    before, after = _reach(a, None) <= distance, distance + _reach(b, None) <= 0
    if isinstance(before, bool) and isinstance(after, bool):
        return before or after
    from torch.fx.experimental.symbolic_shapes import guard_or_true  # imports SymPy

    # Sizes that nobody knows yet are asked again in the body.
    return bool(guard_or_true(before) or guard_or_true(after))


def _apart_modulo(a: torch.Tensor, b: torch.Tensor, distance: Any, period: Any) -> bool:
    """Whether the two lie in different parts of a period of memory that both repeat with.

    So it is for the columns of one matrix: a row's stride is the period, also where a compiler has
    a symbol for it.
    """
    first, second = _reach(a, period), _reach(b, period)
    start = distance % period
    return _holds(first <= start) and _holds(start + second <= period)


def _holds(condition: Any) -> bool:
    """Whether ``condition`` is known to hold; what a compiler knows it by becomes a guard."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # imports SymPy

    return bool(guard_or_false(condition))


def _has_memory(tensor: torch.Tensor) -> bool:
    return not (
        isinstance(tensor, (FakeTensor, FunctionalTensor))
        or tensor.is_meta
        or torch._is_functional_tensor(tensor)
    )


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _periods(*tensors: torch.Tensor) -> Iterator[Any]:
    found: set[int] = set()
    for tensor in tensors:
        for stride, size in zip(tensor.stride(), tensor.shape, strict=True):
            if _is_one(size) or not _holds(stride > 0):
                continue
            period = stride * tensor.element_size()
            # Symbols have no hash, and to compare two may be one more guard.
            if not isinstance(period, int):
                yield period
            elif period not in found:
                found.add(period)
                yield period


def _reach(tensor: torch.Tensor, period: Any) -> Any:
    """The bytes from the first element to behind the last, without axes that repeat a period."""
    width = tensor.element_size()
    reach: Any = width
    for stride, size in zip(tensor.stride(), tensor.shape, strict=True):
        step = stride * width
        if period is None or not _holds(step % period == 0):
            reach = reach + step * (size - 1)
    return reach


def _offset(tensor: torch.Tensor) -> Any:
    return tensor.storage_offset() * tensor.element_size()
