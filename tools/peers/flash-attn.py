"""flash-attn-4: attention in CuTe-DSL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DISTRIBUTION = "flash-attn-4"
MODULE = "flash_attn.cute"


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Callable[..., Any] | None:
    """Attention over dense batches."""
    if op != "GQAPrefillFwdOp":
        return None
    from flash_attn.cute import flash_attn_func

    left, right = (None if size < 0 else size for size in params["window_size"])

    def attention(q: Any, k: Any, v: Any) -> Any:
        found = flash_attn_func(
            q,
            k,
            v,
            softmax_scale=params["softmax_scale"],
            causal=params["causal"],
            window_size=(left, right),
            softcap=params["softcap"],
        )
        return found[0] if isinstance(found, tuple) else found

    return attention
