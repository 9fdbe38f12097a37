"""Adaptive LayerNorm."""

from tileops.norm.ada_layer_norm.op import AdaLayerNormFwdOp

__all__ = ["AdaLayerNormFwdOp"]
