"""Ops that are made of other ops.

A composite has no compile boundary of its own: tracing goes through its ``forward``, and each op
that it calls becomes a node of the caller's graph. The family has no op yet.
"""

from tileops.composite.__about__ import __version__
from tileops.manifest import require_siblings

# Before any entry is read: a sibling of another version would fail there, and not say why.
require_siblings("tileops-composite")

__all__ = ["__version__"]
