"""What a check is: a name, what it says of a subject, and when it says nothing.

A check is a function of a :class:`~tileops.core.contract.subject.Subject`, in a module of its own
below ``checks``. It raises where the contract is broken, and returns what it found otherwise.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tileops.core.errors import ContractError

if TYPE_CHECKING:
    from tileops.core.contract.subject import Subject

__all__ = [
    "BLOCKED",
    "BROKEN",
    "HELD",
    "NOT_APPLICABLE",
    "OUTCOMES",
    "Blocked",
    "Check",
    "Finding",
    "NotApplicable",
    "Spent",
    "check",
    "observe",
]

HELD, BROKEN, BLOCKED, NOT_APPLICABLE = "held", "broken", "blocked", "not applicable"
OUTCOMES = (HELD, BROKEN, BLOCKED, NOT_APPLICABLE)

_LONGEST = 2000


class Spent(NamedTuple):
    """A detail, and the seconds that were spent elsewhere to find it."""

    detail: str
    seconds: float


class NotApplicable(Exception):
    """Says of a check why its subject has nothing for it."""


class Blocked(Exception):
    """What a check stands on failed; ``by`` is the name of the check that says so."""

    def __init__(self, by: str, cause: Exception, outcome: str = BROKEN) -> None:
        self.by, self.cause = by, cause
        super().__init__(f"{by} is {outcome}: {brief(cause)}")


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check found of one subject."""

    check: str
    outcome: str
    detail: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: what tables, reports and errors call it.
        says: what holds where it does.
        run: the check; raises where it is broken, and returns a detail.
        of_op: whether it is about the op, whoever serves it, and is made once for a case on a
            device and not for each target.
        together: whether it needs processes, which all subjects of a run share: ``run`` reads
            what they found.
    """

    name: str
    says: str
    run: Callable[[Subject], str | Spent]
    of_op: bool = False
    together: bool = False


def check(
    name: str, *, of_op: bool = False, together: bool = False
) -> Callable[[Callable[[Subject], str | Spent]], Check]:
    """Makes a check of a function; the first line of its docstring says what holds."""

    def make(function: Callable[[Subject], str | Spent]) -> Check:
        says = (function.__doc__ or "").strip().splitlines()[0]
        return Check(name, says, function, of_op, together)

    return make


def observe(one: Check, subject: Subject) -> Finding:
    """Makes the check, once for a subject; what it raises is its outcome."""
    if one.name not in subject.found:
        subject.found[one.name] = _observed(one, subject)
    return subject.found[one.name]


def _observed(one: Check, subject: Subject) -> Finding:
    start = time.perf_counter()
    try:
        found = one.run(subject)
        if isinstance(found, Spent):
            return Finding(one.name, HELD, *found)
        outcome, detail = HELD, found
    except NotApplicable as error:
        outcome, detail = NOT_APPLICABLE, str(error)
    except Blocked as error:
        outcome, detail = BLOCKED, str(error)
    except Exception as error:
        # Whatever an op, a kernel or a compiler raises breaks the contract, and ends no run.
        outcome, detail = BROKEN, brief(error)
    return Finding(one.name, outcome, detail, time.perf_counter() - start)


def brief(error: BaseException) -> str:
    """The error in words, without what fills pages."""
    text = str(error).strip()
    if not isinstance(error, ContractError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
