"""The composites' compile cases, and what they are measured against.

The modules register them when they are imported.
"""

from tileops.composite import baselines
from tileops.composite.contracts import blocks

__all__ = ["baselines", "blocks"]
