"""Per-head RMSNorm of queries and keys, and their rotary embedding, in one pass."""

from tileops.positional.fused_qk_norm_rope.op import FusedQKNormRoPEFwdOp

__all__ = ["FusedQKNormRoPEFwdOp"]
