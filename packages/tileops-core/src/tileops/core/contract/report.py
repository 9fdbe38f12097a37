"""A run's report: what was asked, where, and what each check found; by
``schema/contract-report.schema.json``."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tileops.core.bench.surroundings import now, surroundings
from tileops.core.contract.check import BLOCKED, BROKEN, HELD, Finding
from tileops.core.contract.files import replace
from tileops.core.contract.graphs import calls_of
from tileops.core.contract.installed import versions
from tileops.core.contract.plan import Served
from tileops.core.contract.registry import CompileCase
from tileops.core.contract.subject import Subject
from tileops.core.errors import ContractError
from tileops.core.op import Op
from tileops.core.targets import target_names
from tileops.manifest.checks.schema import fault_by_schema

__all__ = [
    "FORMAT",
    "NOTHING_CHECKED",
    "add_checks",
    "begin",
    "findings",
    "identity",
    "op_row",
    "process_row",
    "read",
    "subject_row",
    "title",
    "unserved_row",
    "verdict",
    "write",
]

FORMAT = 1


def begin(asked: dict[str, Any], devices: Sequence[str], seed: int) -> dict[str, Any]:
    """A report without rows."""
    where = {device: surroundings(torch.device(device)) for device in devices}
    first = next(iter(where.values()))
    return {
        "format": FORMAT,
        "complete": False,
        "date": now(),
        "seconds": 0.0,
        "seed": seed,
        "asked": asked,
        "surroundings": {
            "python": platform.python_version(),
            "system": first["system"],
            "cuda": first["cuda"],
            "threads": first["threads"],
            "versions": {**versions(), **first["versions"]},
        },
        "devices": [
            {"device": device, "name": facts["device"], "driver": facts["driver"]}
            for device, facts in where.items()
        ],
        "targets": list(target_names()),
        "problems": [],
        "ops": [],
        "subjects": [],
    }


def op_row(cls: type[Op], labels: Sequence[str], checks: Sequence[Finding]) -> dict[str, Any]:
    """What the report says of an op."""
    operators = []
    for name in cls.compile_op_names:
        namespace, _, base = name.partition("::")
        overload = getattr(getattr(torch.ops, namespace), base).default
        operators.append(
            {
                "name": name,
                "schema": str(overload._schema),
                "tags": sorted(str(tag).removeprefix("Tag.") for tag in overload.tags),
            }
        )
    return {
        "op": cls.entry.name,
        "family": cls.entry.family,
        "module": cls.__module__,
        "operators": operators,
        "cases": list(labels),
        "checks": [_row(finding) for finding in checks],
    }


def identity(case: CompileCase, device: torch.device) -> dict[str, Any]:
    """The case and where it is checked."""
    entry = case.op.entry
    return {"op": entry.name, "family": entry.family, "case": case.label, "device": str(device)}


def subject_row(subject: Subject, checks: Sequence[Finding]) -> dict[str, Any]:
    """What the report says of one case on one device, served by one target."""
    graph: list[str] | None = None
    try:
        graphs = subject.compiled("aot_eager").recorder.graphs
        graph = [name for one in graphs for name in calls_of(one)]
    except Exception:
        pass  # cold-compile says so
    return {
        **identity(subject.case, subject.device),
        "target": subject.served_by,
        "default": subject.target is None,
        "serves": True,
        "reason": "",
        "graph": graph,
        "checks": [_row(finding) for finding in checks],
    }


def unserved_row(case: CompileCase, device: torch.device, served: Served) -> dict[str, Any]:
    """What the report says of a target that does not serve the case there."""
    return {
        **identity(case, device),
        "target": served.target,
        "default": served.default,
        "serves": False,
        "reason": served.problem,
        "graph": None,
        "checks": [],
    }


def process_row(case: CompileCase, device: torch.device, finding: Finding) -> dict[str, Any]:
    """What the report says of a case whose process did not come to its end."""
    return {
        **identity(case, device),
        "target": "",
        "default": False,
        "serves": True,
        "reason": "",
        "graph": None,
        "checks": [_row(finding)],
    }


def add_checks(row: dict[str, Any], checks: Sequence[Finding], order: Sequence[str]) -> None:
    """Adds findings to a subject's row, in the order of the checks' names."""
    row["checks"] += [_row(finding) for finding in checks]
    row["checks"].sort(key=lambda one: order.index(one["check"]))


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "outcome": finding.outcome,
        "detail": finding.detail,
        "seconds": round(finding.seconds, 4),
    }


def findings(report: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every check of the report, with the name of what it is of."""
    for row in report["ops"]:
        for one in row["checks"]:
            yield row["op"], one
    for row in report["subjects"]:
        for one in row["checks"]:
            yield title(row), one


def title(row: dict[str, Any]) -> str:
    """What tables and comparisons call a subject."""
    served = f" by {row['target']}" if row["target"] else ""
    return f"{row['op']}-{row['case']} on {row['device']}{served}"


NOTHING_CHECKED = 2


def verdict(report: dict[str, Any]) -> int:
    """0 where all held, 1 where something is broken, 2 where no case was checked."""
    outcomes = [one["outcome"] for _, one in findings(report)]
    if report["problems"] or BROKEN in outcomes or BLOCKED in outcomes:
        return 1
    checked = any(one["outcome"] == HELD for row in report["subjects"] for one in row["checks"])
    return 0 if checked else NOTHING_CHECKED


def read(path: Path) -> dict[str, Any]:
    """A report from a file.

    Raises:
        ContractError: the file cannot be read, or is no report of this format.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ContractError(f"{path} cannot be read as a report: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or "subjects" not in found:
        raise ContractError(f"{path} is no contract report of format {FORMAT}")
    wrong = fault_by_schema(found, "contract-report.schema.json")
    if wrong:
        raise ContractError(
            f"{path} is a damaged contract report: {wrong[:200]}; make it anew with: tileops "
            f"contract --json {path}"
        )
    return found


def write(report: dict[str, Any], path: Path) -> None:
    """Replaces the file in one step.

    Raises:
        ContractError: the file cannot be written.
    """
    replace(path, (json.dumps(report, indent=1) + "\n").encode("ascii"))
