"""What a check stands on: another check, which says it better where it is broken."""

from __future__ import annotations

from tileops.core.contract.check import BLOCKED, BROKEN, Blocked, Check, observe
from tileops.core.contract.subject import Subject
from tileops.core.errors import ContractError

__all__ = ["needs_held"]


def needs_held(subject: Subject, *checks: Check) -> None:
    """Raises where one of ``checks`` does not hold; one that does not apply is none.

    Raises:
        Blocked: one does not.
    """
    for check in checks:
        finding = observe(check, subject)
        if finding.outcome in (BROKEN, BLOCKED):
            raise Blocked(check.name, ContractError(finding.detail), finding.outcome)
