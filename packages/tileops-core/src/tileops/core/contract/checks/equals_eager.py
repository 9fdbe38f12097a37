"""The check ``equals-eager``."""

from __future__ import annotations

from tileops.core.contract.check import check
from tileops.core.contract.judge import require_equal
from tileops.core.contract.subject import BACKENDS, Subject
from tileops.core.contract.traced import needs_traced
from tileops.core.errors import ContractError

__all__ = ["equals_eager"]


@check("equals-eager")
def equals_eager(subject: Subject) -> str:
    """Compiled, a call gives what it gives eager, in the same shapes, dtypes and strides."""
    needs_traced(subject)
    for backend in BACKENDS:
        try:
            require_equal(subject, subject.compiled(backend).ran, subject.eager, "the eager call's")
        except ContractError as error:
            raise ContractError(f"compiled by {backend}, {error}") from error
    return "to the bit" if subject.has_boundary else "within twice the entry's tolerance"
