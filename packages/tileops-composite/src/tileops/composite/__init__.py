"""Ops that are made of other ops.

A composite has no compile boundary of its own: tracing goes through its ``forward``, and each op
that it calls becomes a node of the caller's graph.
"""

from tileops.composite.__about__ import __version__
from tileops.manifest import require_siblings

# Before any entry is read: a sibling of another version would fail there, and not say why.
require_siblings("tileops-composite")

from tileops.composite.ada_ln_zero_block import AdaLNZeroBlockFwdOp  # noqa: E402
from tileops.composite.gated_mlp import GatedMLPFwdOp  # noqa: E402
from tileops.composite.pre_norm_attention import PreNormAttentionFwdOp  # noqa: E402
from tileops.composite.transformer_block import TransformerBlockFwdOp  # noqa: E402

__all__ = [
    "AdaLNZeroBlockFwdOp",
    "GatedMLPFwdOp",
    "PreNormAttentionFwdOp",
    "TransformerBlockFwdOp",
    "__version__",
]
