"""Normalisation ops.

The family for ops that rescale their input by statistics of it: RMSNorm, LayerNorm and the forms
of them that also add a residual, are modulated by a condition, or give fp8.
"""

from tileops.manifest import require_siblings
from tileops.norm.__about__ import __version__

# Before any entry is read: another manifest would fail there, and not say why.
require_siblings("tileops-norm")

from tileops.norm.ada_layer_norm import AdaLayerNormFwdOp  # noqa: E402
from tileops.norm.ada_layer_norm_zero import AdaLayerNormZeroFwdOp  # noqa: E402
from tileops.norm.channels import (  # noqa: E402
    BatchNormFwdOp,
    GroupNormFwdOp,
    InstanceNormFwdOp,
)
from tileops.norm.fused_add_layer_norm import FusedAddLayerNormFwdOp  # noqa: E402
from tileops.norm.fused_add_rms_norm import FusedAddRMSNormFwdOp  # noqa: E402
from tileops.norm.fused_add_rms_norm_per_token_quant import (  # noqa: E402
    FusedAddRMSNormPerTokenQuantFwdOp,
)
from tileops.norm.layer_norm import LayerNormFwdOp  # noqa: E402
from tileops.norm.rms_norm import RMSNormFwdOp  # noqa: E402
from tileops.norm.rms_norm_per_token_quant import RMSNormPerTokenQuantFwdOp  # noqa: E402

__all__ = [
    "AdaLayerNormFwdOp",
    "AdaLayerNormZeroFwdOp",
    "BatchNormFwdOp",
    "FusedAddLayerNormFwdOp",
    "FusedAddRMSNormFwdOp",
    "FusedAddRMSNormPerTokenQuantFwdOp",
    "GroupNormFwdOp",
    "InstanceNormFwdOp",
    "LayerNormFwdOp",
    "RMSNormFwdOp",
    "RMSNormPerTokenQuantFwdOp",
    "__version__",
]
