"""RMSNorm of a sum with fp8 results."""

from tileops.norm.fused_add_rms_norm_per_token_quant.op import FusedAddRMSNormPerTokenQuantFwdOp

__all__ = ["FusedAddRMSNormPerTokenQuantFwdOp"]
