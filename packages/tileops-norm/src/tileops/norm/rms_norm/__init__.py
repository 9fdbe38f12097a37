"""RMSNorm."""

from tileops.norm.rms_norm.op import RMSNormFwdOp

__all__ = ["RMSNormFwdOp"]
