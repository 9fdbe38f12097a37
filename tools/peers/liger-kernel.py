"""Liger-Kernel: its Triton functions, called as its own modules call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DISTRIBUTION = "liger-kernel"
MODULE = "liger_kernel"


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Callable[..., Any] | None:
    """RMSNorm over one axis.

    Its casting mode "gemma" computes all of it in float32, as the op does; "llama" rounds before
    the weight.
    """
    if op != "RMSNormFwdOp" or len(params["normalized_shape"]) != 1:
        return None
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    eps = 2.0**-23 if params["eps"] is None else params["eps"]

    def rms_norm(x: Any, weight: Any = None) -> Any:
        return LigerRMSNormFunction.apply(x, weight, eps, 0.0, "gemma", False)

    return rms_norm
