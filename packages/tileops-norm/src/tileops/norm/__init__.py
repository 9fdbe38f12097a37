"""Normalisation ops.

The family for ops that rescale their input by statistics of it: RMSNorm, LayerNorm and the forms
of them that also add a residual.
"""

from tileops.norm.__about__ import __version__
from tileops.norm.rms_norm import RMSNormFwdOp

__all__ = ["RMSNormFwdOp", "__version__"]
