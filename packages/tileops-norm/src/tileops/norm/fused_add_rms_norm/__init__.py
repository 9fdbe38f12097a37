"""RMSNorm of a sum."""

from tileops.norm.fused_add_rms_norm.op import FusedAddRMSNormFwdOp

__all__ = ["FusedAddRMSNormFwdOp"]
