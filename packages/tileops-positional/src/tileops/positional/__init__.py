"""Positional-encoding ops.

The family for ops that tell a model where a token stands: rotary embeddings, and the ALiBi and
sinusoidal tables, which take no tensor at the call. It has no op yet.
"""

from tileops.manifest import require_siblings
from tileops.positional.__about__ import __version__

# Before any entry is read: another manifest would fail there, and not say why.
require_siblings("tileops-positional")

__all__ = ["__version__"]
