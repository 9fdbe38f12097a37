"""Makes the checks of a run and gathers its report."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tileops.core.choice import Choice
from tileops.core.contract import report as reports
from tileops.core.contract.check import BROKEN, HELD, NOT_APPLICABLE, Check, Finding, observe
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.plan import Served, ops_of, served_on, subjects_of
from tileops.core.contract.processes import Place, Processes, place_of
from tileops.core.contract.registry import CompileCase, cases
from tileops.core.contract.subject import Subject
from tileops.core.op import Op

__all__ = ["Step", "Work", "has_case", "run", "work_of"]

Step = Callable[[int, int, str], None]
"""Told of each piece of work before it begins: its number, how many there are, and its name."""


@dataclasses.dataclass(frozen=True)
class Work:
    """One case on one device."""

    case: CompileCase
    device: torch.device

    @property
    def name(self) -> str:
        return f"{self.case.name} on {self.device}"


def work_of(ops: Sequence[type[Op]], devices: Sequence[str]) -> list[Work]:
    """The cases of the ops, by device."""
    return [
        Work(case, torch.device(device)) for case in cases() if case.op in ops for device in devices
    ]


def has_case(cls: type[Op]) -> Finding:
    """Whether an op that must have a compile case has one."""
    labels = [case.label for case in cases() if case.op is cls]
    if labels:
        return Finding("has-case", HELD, ", ".join(labels))
    if not cls.compile_op_names:
        return Finding("has-case", NOT_APPLICABLE, "the op has no compile boundary, and no case")
    return Finding(
        "has-case",
        BROKEN,
        f"{cls.__name__} has a compile boundary and no compile case; register one in the module "
        f"that its family's entry point of tileops.contracts names",
    )


def run(
    choice: Choice,
    devices: Sequence[str],
    *,
    targets: Sequence[str] = (),
    seed: int,
    step: Step,
    report: dict[str, Any],
    checks: Sequence[Check] = CHECKS,
    only: Sequence[str] = (),
) -> None:
    """Adds to ``report`` what the checks find of the chosen ops.

    ``only`` names the cases, as ``CompileCase.name`` does, where not all of an op's are meant.

    Raises:
        ValueError: the choice names what is not there.
    """
    start = time.perf_counter()
    ops = ops_of(choice)
    for cls in ops:
        labels = [case.label for case in cases() if case.op is cls]
        report["ops"].append(reports.op_row(cls, labels, [has_case(cls)]))
    work = [one for one in work_of(ops, devices) if not only or one.case.name in only]
    subjects: list[Subject] = []
    for number, one in enumerate(work, start=1):
        step(number, len(work), f"{one.name}: who serves it")
        served = served_on(one.case, one.device, targets)
        subjects += subjects_of(one.case, one.device, served, targets, seed)
        report["subjects"] += [
            _unserved(one, each)
            for each in served
            if each.problem and (targets or not each.default)
        ]
    with Processes(_leading(subjects, checks), seed) as processes:
        rows = []
        for number, subject in enumerate(subjects, start=1):
            step(number, len(subjects), subject.name)
            subject.processes = processes
            found = [observe(check, subject) for check in _due(subject, checks, together=False)]
            rows.append(reports.subject_row(subject, found))
            report["subjects"].append(rows[-1])
            report["seconds"] = round(time.perf_counter() - start, 3)
            subject.forget()
        if processes.work:
            step(len(subjects), len(subjects), "the fresh processes")
        for subject, row in zip(subjects, rows, strict=True):
            late = [observe(check, subject) for check in _due(subject, checks, together=True)]
            reports.add_checks(row, late, [check.name for check in checks])
    report["complete"] = True
    report["seconds"] = round(time.perf_counter() - start, 3)


def _due(subject: Subject, checks: Sequence[Check], *, together: bool) -> Iterator[Check]:
    for check in checks:
        if check.together is together and (subject.leads or not check.of_op):
            yield check


def _leading(subjects: Sequence[Subject], checks: Sequence[Check]) -> list[Place]:
    if not any(check.together for check in checks):
        return []
    return [place_of(subject) for subject in subjects if subject.leads]


def _unserved(work: Work, served: Served) -> dict[str, Any]:
    """What the report says of a target that does not serve the case there."""
    return {
        **reports.identity(work.case, work.device),
        "target": served.target,
        "default": served.default,
        "serves": False,
        "reason": served.problem,
        "graph": None,
        "checks": [],
    }
