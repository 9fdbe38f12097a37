"""The cold compile of one case by one backend, for a test that asks for no more."""

from __future__ import annotations

import torch

from tileops.core.contract.registry import CompileCase
from tileops.core.testing import GraphRecorder

__all__ = ["check_cold_compile"]


def check_cold_compile(
    case: CompileCase, *, device: torch.device, backend: str = "inductor", seed: int = 0
) -> GraphRecorder:
    """Compiles a new instance cold, in one graph, and compares what it computes.

    The first call of an instance that has built nothing is the compiled one. The graph must hold
    the op's operators and nothing else, and the results must equal an eager call's of another
    instance, and the float64 oracle within the entry's tolerance. Returns what was recorded.

    Raises:
        ContractError: one of these does not hold.
    """
    # Here: who registers cases should not wait for what makes the checks.
    from tileops.core.contract.check import Blocked
    from tileops.core.contract.graphs import require_nodes
    from tileops.core.contract.judge import require_equal, require_true
    from tileops.core.contract.subject import Subject
    from tileops.core.contract.writing import require_untouched
    from tileops.core.errors import ContractError

    subject = Subject(case, device, seed=seed)
    try:
        compiled = subject.compiled(backend)
        eager = subject.eager
    except Blocked as error:
        raise error.cause from None
    graphs = compiled.recorder.graphs
    try:
        if len(graphs) != 1:
            raise ContractError(f"{len(graphs)} graphs, and 1 was expected")
        require_nodes(compiled.op, case.nodes, graphs[0])
        require_equal(subject, compiled.ran, eager, "the eager call's")
        require_true(subject, compiled.ran, subject.truth(subject.inputs()))
        require_untouched(subject, compiled.ran)
    except ContractError as error:
        raise ContractError(f"{subject.name}: {error}") from error
    return compiled.recorder
