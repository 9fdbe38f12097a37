"""What the TileOPs families share.

The base class of an op, the compile boundary that it generates from the op's manifest entry, the
targets that serve a call and the cache of built kernels.

Importing this package does not import TileLang: that happens when the first kernel is built.
"""

from tileops.core.__about__ import __version__

__all__ = ["__version__"]
