"""The manifest of TileOPs: one validated entry for every op.

An entry states all that can be known about an op without reading its code. The families generate
their compile boundaries from it; the tests, documentation and benchmarks read the same entry.

Importing this package loads neither torch nor TileLang.
"""

from tileops.manifest.__about__ import __version__

__all__ = ["__version__"]
