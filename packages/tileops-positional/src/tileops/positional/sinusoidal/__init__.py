"""Sinusoidal position embeddings."""

from tileops.positional.sinusoidal.op import SinusoidalFwdOp

__all__ = ["SinusoidalFwdOp"]
