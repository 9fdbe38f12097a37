"""The check ``served``."""

from __future__ import annotations

from tileops.core.contract.check import Blocked, check
from tileops.core.contract.subject import Subject
from tileops.core.errors import ContractError

__all__ = ["served"]


@check("served")
def served(subject: Subject) -> str:
    """A plain call, eager, is served, of a composite all of it by the target that was asked for.

    Twice: the second time, memory that it allocates is filled first, as ``equals-oracle`` needs.
    """
    try:
        _ = subject.eager, subject.filled
    except Blocked as error:
        raise error.cause from None
    if subject.case.op.entry.composition:
        _require_one_target(subject)
    return f"by {subject.served_by}" if subject.served_by else ""


def _require_one_target(subject: Subject) -> None:
    """Requires that all sub-ops that the composite holds be served by the subject's target.

    Raises:
        ContractError: one was not.
    """
    op = subject.make()
    subject.call(op, subject.inputs())
    # None where the op holds none: `cold-compile` says what is wrong with one made in forward.
    found = op.serving_target
    if subject.served_by and found not in (None, subject.served_by):
        raise ContractError(
            f"the op asks for the target {subject.served_by!r}, and its sub-ops were served by "
            f"{found}; give each of them the composite's own target"
        )
