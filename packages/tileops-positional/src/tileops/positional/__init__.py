"""Positional-encoding ops.

The family for ops that tell a model where a token stands: rotary embeddings, and the ALiBi and
sinusoidal tables, which take no tensor at the call. It has no op yet.
"""

from tileops.positional.__about__ import __version__

__all__ = ["__version__"]
