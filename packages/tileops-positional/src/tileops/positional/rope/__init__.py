"""Rotary position embedding."""

from tileops.positional.rope.cache import RoPECacheFwdOp
from tileops.positional.rope.default import RoPEFwdOp
from tileops.positional.rope.multimodal import RoPEMultimodalFwdOp
from tileops.positional.rope.scaled import RoPELlama31FwdOp, RoPELongRoPEFwdOp, RoPEYaRNFwdOp

__all__ = [
    "RoPECacheFwdOp",
    "RoPEFwdOp",
    "RoPELlama31FwdOp",
    "RoPELongRoPEFwdOp",
    "RoPEMultimodalFwdOp",
    "RoPEYaRNFwdOp",
]
