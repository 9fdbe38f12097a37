"""LayerNorm of a sum."""

from tileops.norm.fused_add_layer_norm.op import FusedAddLayerNormFwdOp

__all__ = ["FusedAddLayerNormFwdOp"]
