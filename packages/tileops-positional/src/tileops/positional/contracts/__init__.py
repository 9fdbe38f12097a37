"""The positional family's compile cases, and what its ops are measured against: a module for each
group.

The modules register them when they are imported.
"""

from tileops.positional import baselines
from tileops.positional.contracts import fused_qk_norm_rope, rope, tables

__all__ = ["baselines", "fused_qk_norm_rope", "rope", "tables"]
