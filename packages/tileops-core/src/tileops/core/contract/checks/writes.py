"""The check ``writes``."""

from __future__ import annotations

from tileops.core.contract.check import Blocked, check
from tileops.core.contract.judge import disagreement
from tileops.core.contract.subject import BACKENDS, Ran, Subject
from tileops.core.contract.traced import needs_tensors
from tileops.core.contract.writing import require_untouched
from tileops.core.errors import ContractError

__all__ = ["writes"]


@check("writes")
def writes(subject: Subject) -> str:
    """What a call writes is what eager writes, and nothing else is written.

    A result that is a written input, or ``out``, is the caller's own tensor; any other has memory
    of its own.
    """
    needs_tensors(subject)
    written = subject.effects.written
    _require(subject, "eager", subject.eager)
    for backend in BACKENDS:
        try:
            ran = subject.compiled(backend).ran
        except Blocked:
            continue  # cold-compile says so
        _require(subject, f"compiled by {backend}", ran)
        # Without a boundary, equals-eager has the tolerance that a fused write needs.
        for name in written if subject.has_boundary else ():
            problem = disagreement(ran.given[name], subject.eager.given[name], None)
            if problem:
                raise ContractError(f"compiled by {backend}, the written input {name} {problem}")
    return ", ".join(written) or "nothing"


def _require(subject: Subject, how: str, ran: Ran) -> None:
    try:
        require_untouched(subject, ran)
    except ContractError as error:
        raise ContractError(f"{how}, {error}") from error
