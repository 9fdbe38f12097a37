"""Normalisation ops.

The family for ops that rescale their input by statistics of it: RMSNorm, LayerNorm and the forms
of them that also add a residual.
"""

from tileops.manifest import require_siblings
from tileops.norm.__about__ import __version__

# Before any entry is read: another manifest would fail there, and not say why.
require_siblings("tileops-norm")

from tileops.norm.rms_norm import RMSNormFwdOp  # noqa: E402

__all__ = ["RMSNormFwdOp", "__version__"]
