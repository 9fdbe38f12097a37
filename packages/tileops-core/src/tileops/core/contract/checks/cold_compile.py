"""The check ``cold-compile``."""

from __future__ import annotations

from tileops.core.contract.check import Blocked, check
from tileops.core.contract.subject import BACKENDS, Subject
from tileops.core.contract.traced import needs_traced
from tileops.core.errors import ContractError

__all__ = ["cold_compile"]


@check("cold-compile")
def cold_compile(subject: Subject) -> str:
    """An instance that has built nothing compiles under fullgraph=True, into one graph."""
    needs_traced(subject)
    for backend in BACKENDS:
        try:
            count = len(subject.compiled(backend).recorder.graphs)
        except Blocked as error:
            raise error.cause from None
        if count != 1:
            raise ContractError(f"{backend} compiled {count} graphs, and 1 was expected")
    return f"by {' and '.join(BACKENDS)}"
