"""The subjects of some cases, asked for when they are needed, and the processes that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch

from tileops.core.contract.check import BLOCKED, BROKEN, HELD, Check, Finding, observe
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.plan import Served, served_on, subjects_of
from tileops.core.contract.processes import Processes, place_of
from tileops.core.contract.registry import CompileCase, cases
from tileops.core.contract.subject import Subject
from tileops.core.errors import ContractError
from tileops.core.op import Op

__all__ = ["Members", "Suite", "Work", "require_held", "work_of"]


@dataclasses.dataclass(frozen=True)
class Work:
    """One case on one device."""

    case: CompileCase
    device: torch.device

    @property
    def name(self) -> str:
        return f"{self.case.name} on {self.device}"


@dataclasses.dataclass(frozen=True)
class Members:
    """What each target says of one piece of work, and a subject for each that serves it."""

    served: tuple[Served, ...]
    subjects: tuple[Subject, ...]


def work_of(
    ops: Sequence[type[Op]], devices: Sequence[str], only: Sequence[str] = ()
) -> list[Work]:
    """The cases of the ops, on each device; ``only`` names cases, where not all are meant."""
    return [
        Work(case, torch.device(device))
        for case in cases()
        if case.op in ops and (not only or case.name in only)
        for device in devices
    ]


class Suite:
    """All of the work of one run; a context manager.

    Raises nothing of what its subjects raise: that is what checks find.
    """

    def __init__(
        self,
        work: Sequence[Work],
        *,
        targets: Sequence[str] = (),
        seed: int,
        checks: Sequence[Check] = CHECKS,
    ) -> None:
        self.work = list(work)
        self.targets = tuple(targets)
        self.seed = seed
        self.checks = tuple(checks)
        self._members: dict[str, Members] = {}
        self._processes: Processes | None = None

    def __enter__(self) -> Suite:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the fresh processes, where some go on."""
        if self._processes is not None:
            self._processes.close()

    def members(self, work: Work) -> Members:
        """The targets and the subjects of one piece of work."""
        if work.name not in self._members:
            served = served_on(work.case, work.device, self.targets)
            subjects = subjects_of(work.case, work.device, served, self.targets, self.seed)
            self._members[work.name] = Members(tuple(served), tuple(subjects))
        return self._members[work.name]

    def subjects(self) -> list[Subject]:
        """All of them; every target is asked now."""
        return [subject for one in self.work for subject in self.members(one).subjects]

    def start(self) -> Processes:
        """Begins with the fresh processes, once."""
        if self._processes is None:
            needed = any(check.together for check in self.checks)
            leading = [subject for subject in self.subjects() if subject.leads]
            self._processes = Processes(list(map(place_of, leading)) if needed else [], self.seed)
            self._processes.start()
        return self._processes

    def due(self, subject: Subject, *, together: bool) -> list[Check]:
        """The checks of a subject: those that need the fresh processes, or the others."""
        return [
            check
            for check in self.checks
            if check.together is together and (subject.leads or not check.of_op)
        ]

    def findings(self, work: Work, check: Check) -> Iterator[tuple[Subject, Finding]]:
        """What one check finds of each subject that it is made of."""
        for subject in self.members(work).subjects:
            if subject.leads or not check.of_op:
                yield subject, self.observe(check, subject)

    def observe(self, check: Check, subject: Subject) -> Finding:
        """Makes the check, beside the fresh processes where it needs them."""
        if check.together:
            processes = self.start()
            processes.wait()
            subject.processes = processes
        return observe(check, subject)

    def unserved(self, work: Work) -> list[Served]:
        """The targets that the work has no subject of, each with its reason."""
        return [
            one
            for one in self.members(work).served
            if one.problem and (self.targets or not one.default)
        ]


def require_held(findings: Sequence[tuple[str, Finding]]) -> str:
    """Requires that none of some subjects' findings be broken.

    Returns why none of them says anything, where that is so, else "".

    Raises:
        ContractError: some are; the message has them all.
    """
    broken = [
        f"{name}: {one.check}: {one.detail}"
        for name, one in findings
        if one.outcome in (BROKEN, BLOCKED)
    ]
    if broken:
        raise ContractError("\n".join(broken))
    if any(one.outcome == HELD for _, one in findings):
        return ""
    told = [f"{name}: {one.check}: {one.outcome}: {one.detail}" for name, one in findings]
    return "; ".join(told) or "no target serves the case"
