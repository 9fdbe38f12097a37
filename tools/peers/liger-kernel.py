"""Liger-Kernel: its Triton functions, called as its own modules call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DISTRIBUTION = "liger-kernel"
MODULE = "liger_kernel"

Peer = Callable[..., Any]


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Peer | None:
    """The norms over one axis that it has; none of them writes its inputs.

    Its casting mode "gemma" computes all of a root-mean-square norm in float32, as the op does;
    "llama" rounds before the weight. Its forms of the fused addition and of LayerNorm have their
    weights always.
    """
    if len(params.get("normalized_shape", ())) != 1 or params.get("inplace"):
        return None
    if op == "RMSNormFwdOp":
        return _rms_norm(params)
    if op == "FusedAddRMSNormFwdOp" and "weight" in arguments:
        return _fused_add_rms_norm(params)
    if op == "LayerNormFwdOp" and {"weight", "bias"} <= set(arguments):
        return _layer_norm(params)
    return None


def _rms_norm(params: dict[str, Any]) -> Peer:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    eps, offset = _eps(params), params["weight_offset"]

    def rms_norm(x: Any, weight: Any = None) -> Any:
        return LigerRMSNormFunction.apply(x, weight, eps, offset, "gemma", False)

    return rms_norm


def _fused_add_rms_norm(params: dict[str, Any]) -> Peer:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    eps, offset = _eps(params), params["weight_offset"]

    def fused_add_rms_norm(x: Any, residual: Any, weight: Any) -> Any:
        return LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps, offset, "gemma", False)

    return fused_add_rms_norm


def _layer_norm(params: dict[str, Any]) -> Peer:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        return LigerLayerNormFunction.apply(x, weight, bias, params["eps"])

    return layer_norm


def _eps(params: dict[str, Any]) -> float:
    return 2.0**-23 if params["eps"] is None else float(params["eps"])
