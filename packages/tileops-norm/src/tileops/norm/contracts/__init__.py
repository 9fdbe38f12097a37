"""The norm family's compile cases, and what its ops are measured against: a module for each group.

The modules register them when they are imported.
"""

from tileops.norm.channels import contracts as channels
from tileops.norm.contracts import ada, fused_add, layer_norm, quant, rms_norm

__all__ = ["ada", "channels", "fused_add", "layer_norm", "quant", "rms_norm"]
