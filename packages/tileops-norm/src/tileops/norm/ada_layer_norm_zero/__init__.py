"""Adaptive LayerNorm of a gated sum."""

from tileops.norm.ada_layer_norm_zero.op import AdaLayerNormZeroFwdOp

__all__ = ["AdaLayerNormZeroFwdOp"]
