"""The check ``dynamic-automatic``."""

from __future__ import annotations

from tileops.core.contract.check import check
from tileops.core.contract.checks.equals_oracle import equals_oracle
from tileops.core.contract.checks.graph_nodes import graph_nodes
from tileops.core.contract.checks.writes import writes
from tileops.core.contract.dynamic import require_sizes
from tileops.core.contract.sound import needs_held
from tileops.core.contract.subject import Subject

__all__ = ["dynamic_automatic"]

SIZES = (8, 16, 2, 33)


@check("dynamic-automatic")
def dynamic_automatic(subject: Subject) -> str:
    """A number of rows that nobody marked takes two graphs from 2 up."""
    needs_held(subject, graph_nodes, equals_oracle, writes)
    return require_sizes(subject, SIZES, 2, "aot_eager", marked=False)
