"""The check ``same-graph``."""

from __future__ import annotations

import torch

from tileops.core.contract.check import NotApplicable, check
from tileops.core.contract.graphs import text_of
from tileops.core.contract.subject import Subject, cold
from tileops.core.contract.traced import needs_tensors
from tileops.core.errors import ContractError
from tileops.core.testing import GraphRecorder

__all__ = ["same_graph"]


@check("same-graph", of_op=True)
def same_graph(subject: Subject) -> str:
    """The graph is the same for every target that serves the case on this device.

    Chosen by the constructor's ``target=``, or by nobody.
    """
    needs_tensors(subject)
    names = [name for name in (subject.served_by, *subject.others) if name != subject.target]
    if not names:
        raise NotApplicable(f"the target {subject.target!r} alone was asked for, or alone serves")
    (graph,) = subject.compiled("aot_eager").recorder.graphs
    text = text_of(graph)
    for target in names:
        recorder = GraphRecorder("aot_eager")
        with cold(subject.device):
            compiled = torch.compile(subject.make(target), backend=recorder, fullgraph=True)
            subject.call(compiled, subject.inputs())
        for other in recorder.graphs:
            difference = _difference(text, text_of(other))
            if difference:
                asked = subject.target or "no target"
                raise ContractError(f"with target={target!r} the graph {difference} with {asked}")
    return f"with {', '.join([subject.target or 'no target', *names])}"


def _difference(ours: str, theirs: str) -> str:
    if ours == theirs:
        return ""
    first, second = ours.splitlines(), theirs.splitlines()
    for one, other in zip(first, second, strict=False):
        if one != other:
            return f"has the node {other!r}, and {one!r}"
    return f"has {len(second)} nodes, and {len(first)}"
