"""``--isolate``: every case has a process of its own, which may die without the others."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tileops.core.choice import Choice
from tileops.core.contract import report as reports
from tileops.core.contract.check import BROKEN, Finding
from tileops.core.contract.plan import ops_of
from tileops.core.contract.processes import run_child
from tileops.core.contract.registry import cases
from tileops.core.contract.run import Step, has_case, run
from tileops.core.contract.suite import work_of
from tileops.core.errors import ContractError

__all__ = ["check_one", "run_isolated"]

PROCESS = "process"
"""The check that the case's process comes to its end."""


def run_isolated(
    choice: Choice,
    devices: Sequence[str],
    *,
    targets: Sequence[str],
    seed: int,
    step: Step,
    report: dict[str, Any],
) -> None:
    """As :func:`~tileops.core.contract.run.run`, a process for each case on each device.

    Raises:
        ValueError: the choice names what is not there.
    """
    ops = ops_of(choice)
    for cls in ops:
        labels = [case.label for case in cases() if case.op is cls]
        report["ops"].append(reports.op_row(cls, labels, [has_case(cls)]))
    work = work_of(ops, devices)
    for number, one in enumerate(work, start=1):
        step(number, len(work), one.name)
        request = {
            "do": "case",
            "case": one.case.name,
            "op": one.case.op.entry.name,
            "device": str(one.device),
            "targets": list(targets),
            "seed": seed,
        }
        with tempfile.TemporaryDirectory(prefix="tileops-contract-") as folder:
            output = Path(folder) / "report.json"
            end = run_child({**request, "output": str(output)})
            found = reports.read(output) if output.exists() else None
        if found is not None:
            report["subjects"] += found["subjects"]
            report["seconds"] = round(report["seconds"] + found["seconds"], 3)
        if end or found is None:
            detail = f"the case's process {end or 'left no report'}"
            row = reports.process_row(one.case, one.device, Finding(PROCESS, BROKEN, detail))
            report["subjects"].append(row)
    report["complete"] = True


def check_one(request: dict[str, Any]) -> None:
    """What the case's own process does.

    Raises:
        ContractError: no installed family registers the case there.
    """
    asked = {
        "ops": [request["op"]],
        "families": [],
        "targets": request["targets"],
        "devices": [request["device"]],
        "isolate": True,
    }
    report = reports.begin(asked, [request["device"]], request["seed"])
    if request["case"] not in {case.name for case in cases()}:
        raise ContractError(
            f"no installed family registers the case {request['case']} in a fresh process"
        )
    run(
        Choice(ops=[request["op"]]),
        [request["device"]],
        targets=request["targets"],
        seed=request["seed"],
        step=lambda number, count, name: None,
        report=report,
        only=[request["case"]],
    )
    reports.write(report, Path(request["output"]))
