"""LayerNorm."""

from tileops.norm.layer_norm.op import LayerNormFwdOp

__all__ = ["LayerNormFwdOp"]
