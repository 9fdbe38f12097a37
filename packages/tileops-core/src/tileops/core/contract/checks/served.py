"""The check ``served``."""

from __future__ import annotations

from tileops.core.contract.check import Blocked, check
from tileops.core.contract.subject import Subject

__all__ = ["served"]


@check("served")
def served(subject: Subject) -> str:
    """A plain call, eager, is served.

    Twice: the second time, memory that it allocates is filled first, as ``equals-oracle`` needs.
    """
    try:
        _ = subject.eager, subject.filled
    except Blocked as error:
        raise error.cause from None
    return f"by {subject.served_by}" if subject.served_by else ""
