"""Makes the checks of a run and gathers its report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tileops.core.choice import Choice
from tileops.core.contract import report as reports
from tileops.core.contract.check import BROKEN, HELD, Check, Finding
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.plan import ops_of
from tileops.core.contract.registry import cases
from tileops.core.contract.suite import Suite, work_of
from tileops.core.op import Op

__all__ = ["Step", "has_case", "run"]

Step = Callable[[int, int, str], None]
"""Told of each piece of work before it begins: its number, how many there are, and its name."""


def has_case(cls: type[Op]) -> Finding:
    """Whether an op has the compile case that it must have, be there a boundary or none."""
    labels = [case.label for case in cases() if case.op is cls]
    if labels:
        return Finding("has-case", HELD, ", ".join(labels))
    return Finding(
        "has-case",
        BROKEN,
        f"{cls.__name__} has no compile case; register one in the module that its family's entry "
        f"point of tileops.contracts names, and install the family again where that point is new",
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
    work = work_of(ops, devices, only)
    with Suite(work, targets=targets, seed=seed, checks=checks) as suite:
        for number, one in enumerate(work, start=1):
            step(number, len(work), f"{one.name}: who serves it")
            report["subjects"] += [
                reports.unserved_row(one.case, one.device, served) for served in suite.unserved(one)
            ]
        processes, subjects, rows = suite.start(), suite.subjects(), []
        for number, subject in enumerate(subjects, start=1):
            step(number, len(subjects), subject.name)
            due = suite.due(subject, together=False)
            rows.append(reports.subject_row(subject, [suite.observe(c, subject) for c in due]))
            report["subjects"].append(rows[-1])
            report["seconds"] = round(time.perf_counter() - start, 3)
            subject.forget()
        if processes.work:
            step(len(subjects), len(subjects), "the fresh processes")
        for subject, row in zip(subjects, rows, strict=True):
            late = [suite.observe(c, subject) for c in suite.due(subject, together=True)]
            reports.add_checks(row, late, [check.name for check in checks])
    report["complete"] = True
    report["seconds"] = round(time.perf_counter() - start, 3)
