"""ALiBi."""

from tileops.positional.alibi.op import AlibiFwdOp

__all__ = ["AlibiFwdOp"]
