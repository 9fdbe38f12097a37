"""Attention ops.

The family for ops that mix values by the similarity of queries and keys, in prefill and in
decoding, with contiguous and with paged key and value caches. It has no op yet.
"""

from tileops.attention.__about__ import __version__
from tileops.manifest import require_siblings

# Before any entry is read: a sibling of another version would fail there, and not say why.
require_siblings("tileops-attention")

__all__ = ["__version__"]
