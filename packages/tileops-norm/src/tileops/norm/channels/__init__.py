"""The norms over channels and space: GroupNorm, InstanceNorm and BatchNorm."""

from tileops.norm.channels.batch_norm import BatchNormFwdOp
from tileops.norm.channels.group_norm import GroupNormFwdOp
from tileops.norm.channels.instance_norm import InstanceNormFwdOp

__all__ = ["BatchNormFwdOp", "GroupNormFwdOp", "InstanceNormFwdOp"]
