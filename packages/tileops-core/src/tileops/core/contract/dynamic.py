"""One compiled function, called with several numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tileops.core.contract.graphs import require_nodes
from tileops.core.contract.judge import require_true
from tileops.core.contract.sizes import mark, rows_of, with_rows
from tileops.core.contract.subject import Subject, cold
from tileops.core.contract.writing import require_untouched
from tileops.core.errors import ContractError
from tileops.core.testing import GraphRecorder

__all__ = ["require_sizes"]


def require_sizes(
    subject: Subject, sizes: Sequence[int], graphs: int, backend: str, *, marked: bool
) -> str:
    """Requires right results for all ``sizes``, from so many graphs that hold the op's nodes.

    Raises:
        ContractError: a result is wrong, or there are more graphs or fewer.
    """
    axes = rows_of(subject)
    op, recorder = subject.make(), GraphRecorder(backend)
    counts = []
    with cold(subject.device):
        compiled = torch.compile(op, backend=recorder, fullgraph=True)
        for draw, rows in enumerate(sizes):
            arguments = with_rows(subject, axes, rows, draw)
            truth = subject.truth(arguments)
            if marked:
                mark(arguments, axes)
            ran = subject.call(compiled, arguments)
            counts.append(len(recorder.graphs))
            try:
                require_true(subject, ran, truth)
                require_untouched(subject, ran)
            except ContractError as error:
                raise ContractError(f"with {rows} rows, {error}") from error
    if counts[-1] != graphs:
        told = ", ".join(f"{rows} rows {count}" for rows, count in zip(sizes, counts, strict=True))
        raise ContractError(
            f"{graphs} {'graph was' if graphs == 1 else 'graphs were'} expected; after {told}"
        )
    for graph in recorder.graphs:
        require_nodes(op, subject.case.nodes, graph)
    return f"{', '.join(map(str, sizes))} rows"
