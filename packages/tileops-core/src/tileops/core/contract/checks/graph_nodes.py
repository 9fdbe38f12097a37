"""The check ``graph-nodes``."""

from __future__ import annotations

from tileops.core.contract.check import check
from tileops.core.contract.graphs import calls_of, require_nodes
from tileops.core.contract.subject import BACKENDS, Subject
from tileops.core.contract.traced import needs_traced

__all__ = ["graph_nodes"]


@check("graph-nodes")
def graph_nodes(subject: Subject) -> str:
    """The graph holds the op's operators and nothing else."""
    needs_traced(subject)
    for backend in BACKENDS:
        compiled = subject.compiled(backend)
        for graph in compiled.recorder.graphs:
            require_nodes(compiled.op, subject.case.nodes, graph)
    return ", ".join(calls_of(graph))
