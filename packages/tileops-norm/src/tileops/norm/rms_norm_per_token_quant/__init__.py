"""RMSNorm with fp8 results."""

from tileops.norm.rms_norm_per_token_quant.op import RMSNormPerTokenQuantFwdOp

__all__ = ["RMSNormPerTokenQuantFwdOp"]
