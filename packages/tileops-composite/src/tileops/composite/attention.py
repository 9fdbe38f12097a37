"""Attention between the nodes of a composite.

This is PyTorch's ``scaled_dot_product_attention``, and no op of tileops-attention, which has none
yet: in a compiled graph it is PyTorch's own node.
"""

from __future__ import annotations

import torch
from torch.nn import functional

__all__ = ["attend"]


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, grouped: bool
) -> torch.Tensor:
    """``softmax(q k / sqrt(D)) v`` for each head, where ``causal`` over tokens that do not follow.

    ``q`` is ``[B, S, H, D]``, ``k`` and ``v`` are ``[B, S, Hkv, D]``; key-value head i serves the
    i-th group of ``H / Hkv`` query heads, and ``grouped`` says that a group has several. Returns
    ``[B, S, H * D]``.
    """
    # Without an element, PyTorch 2.11's attention of 16 bits on a card gives no tensor at all.
    if _is_empty(q):
        return q.flatten(-2)
    out = functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        is_causal=causal,
        enable_gqa=grouped,
    )
    return out.transpose(1, 2).flatten(-2)


def _is_empty(x: torch.Tensor) -> bool:
    """Whether ``x`` has no element; not so where a compiler knows nothing of a size."""
    if not torch.compiler.is_compiling():
        return x.numel() == 0
    # Here, since it takes longer to import than all of this package.
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(x.numel() == 0)
