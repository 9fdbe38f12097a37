"""The check ``dynamic-marked``."""

from __future__ import annotations

from tileops.core.contract.check import check
from tileops.core.contract.checks.equals_oracle import equals_oracle
from tileops.core.contract.checks.graph_nodes import graph_nodes
from tileops.core.contract.checks.writes import writes
from tileops.core.contract.dynamic import require_sizes
from tileops.core.contract.sound import needs_held
from tileops.core.contract.subject import Subject

__all__ = ["dynamic_marked"]

SIZES = (8, 2, 16, 3)


@check("dynamic-marked")
def dynamic_marked(subject: Subject) -> str:
    """A number of rows that is marked dynamic takes one graph from 2 up."""
    needs_held(subject, graph_nodes, equals_oracle, writes)
    return require_sizes(subject, SIZES, 1, "inductor", marked=True)
