"""Lazily negated and conjugated views, for operators that write.

PyTorch resolves such views before an operator that knows nothing of them, and copies what was
written back. It does so by what the operator returns, and takes that for the written tensors; an
operator of ours returns only what it allocates, so it gets a kernel of its own that does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tileops.core.overlap import refuse_inference, refuse_overlap

__all__ = ["LAZY_KEYS", "resolving_kernel"]

LAZY_KEYS = ("Conjugate", "Negative")
"""The dispatch keys of such views."""


def resolving_kernel(
    op: str, overload: Callable[[], Any], names: Sequence[str], written: Mapping[int, str]
) -> Callable[..., Any]:
    """The kernel of one operator for :data:`LAZY_KEYS`; it receives the dispatch key set first.

    ``names`` are the operator's arguments but the key, ``written`` those that it writes by
    position.
    """

    def kernel(keyset: Any, *arguments: Any) -> Any:
        tensors = [
            (name, item)
            for name, item in zip(names, arguments, strict=False)
            if isinstance(item, torch.Tensor)
        ]
        # Here, because the copies that are made now overlap nothing, and are of the current mode.
        refuse_overlap(op, tuple(written.values()), tensors)
        refuse_inference(op, tuple(written.values()), [arguments[n] for n in written])
        plain = [
            item.resolve_conj().resolve_neg() if isinstance(item, torch.Tensor) else item
            for item in arguments
        ]
        for key in LAZY_KEYS:
            keyset = keyset.remove(getattr(torch._C.DispatchKey, key))
        result = overload().redispatch(keyset, *plain)
        for position in written:
            if plain[position] is not arguments[position]:
                arguments[position].copy_(plain[position])
        return result

    return kernel
