"""Watches what a call writes, so far as PyTorch can tell.

Two things rest on it: a write that the signature does not declare is refused, because a compiler
knows nothing of it; and a call whose ``forward`` writes by itself, as a counter that it raises,
is not replayed from its kernel's launch alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tileops.core.errors import ResultError

__all__ = ["WriteWatch"]


class WriteWatch:
    """A context manager around one run of ``forward`` on ``given``, which may write ``written``.

    PyTorch counts the writes to each tensor. Of inference tensors it does not; there the
    operators that ``forward`` calls are looked at, and those that a kernel calls are not.

    An ``idle`` one looks at nothing: for a call whose like was watched before.
    """

    def __init__(
        self, given: Mapping[str, Any], written: Sequence[str], *, idle: bool = False
    ) -> None:
        self.given = {
            name: t for name, t in given.items() if isinstance(t, torch.Tensor) and not idle
        }
        self.written = [given[name] for name in written]
        self.forward_wrote = False
        self._by_kernels = 0
        self._counted = [] if idle else self.written
        uncounted = any(tensor.is_inference() for tensor in self._counted)
        self._mode = _Writes() if uncounted else None

    def __enter__(self) -> None:
        self._before = _versions(self.given.values())
        self._entered = contextlib.ExitStack()
        if self._mode is not None:
            self._entered.enter_context(self._mode)

    def __exit__(self, *error: Any) -> None:
        self._entered.close()
        self._after = _versions(self.given.values())
        moved = sum(
            self._after[id(tensor)] - self._before[id(tensor)]
            for tensor in self._counted
            if id(tensor) in self._before
        )
        seen = self._mode is not None and self._mode.found
        self.forward_wrote = seen or moved != self._by_kernels

    @contextlib.contextmanager
    def kernel(self) -> Iterator[None]:
        """Around the launch of a kernel, which is repeated with the launch."""
        before = _versions(self._counted)
        with _disable_current_modes() if self._mode is not None else contextlib.nullcontext():
            yield
        self._by_kernels += sum(_versions(self._counted).values()) - sum(before.values())

    def refuse_undeclared(self, op: str, target: str) -> None:
        """Raises where a tensor was written that the call does not write.

        Raises:
            ResultError: there is one.
        """
        for name, tensor in self.given.items():
            if self._before.get(id(tensor)) != self._after.get(id(tensor)) and not any(
                # Views of one tensor share its count.
                tensor is other or torch._C._overlaps(tensor, other)
                for other in self.written
            ):
                raise ResultError(
                    f"{op}: the target {target!r} wrote the argument {name!r}, but the signature "
                    f"of this call does not let it; mend the target"
                )


def _versions(tensors: Any) -> dict[int, int]:
    return {id(item): item._version for item in tensors if not item.is_inference()}


class _Writes(TorchDispatchMode):
    """Notes whether an operator that writes is called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found = self.found or func._schema.is_mutable
        return func(*args, **(kwargs or {}))
