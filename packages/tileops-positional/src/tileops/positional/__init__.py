"""Positional-encoding ops.

The family for ops that tell a model where a token stands: rotary embeddings, and the ALiBi and
sinusoidal tables, which take no tensor at the call.
"""

from tileops.manifest import require_siblings
from tileops.positional.__about__ import __version__

# Before any entry is read: another manifest would fail there, and not say why.
require_siblings("tileops-positional")

from tileops.positional.alibi import AlibiFwdOp  # noqa: E402
from tileops.positional.fused_qk_norm_rope import FusedQKNormRoPEFwdOp  # noqa: E402
from tileops.positional.rope import (  # noqa: E402
    RoPECacheFwdOp,
    RoPEFwdOp,
    RoPELlama31FwdOp,
    RoPELongRoPEFwdOp,
    RoPEMultimodalFwdOp,
    RoPEYaRNFwdOp,
)
from tileops.positional.sinusoidal import SinusoidalFwdOp  # noqa: E402

__all__ = [
    "AlibiFwdOp",
    "FusedQKNormRoPEFwdOp",
    "RoPECacheFwdOp",
    "RoPEFwdOp",
    "RoPELlama31FwdOp",
    "RoPELongRoPEFwdOp",
    "RoPEMultimodalFwdOp",
    "RoPEYaRNFwdOp",
    "SinusoidalFwdOp",
    "__version__",
]
