"""A report on disk: written whole after each row, so that an interrupted run can go on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tileops.core.errors import BenchError
from tileops.core.files import replace
from tileops.manifest.checks.schema import fault_by_schema

__all__ = ["FORMAT", "begin", "check_writable", "find_row", "read", "write"]

FORMAT = 1


def begin(surroundings: dict[str, Any]) -> dict[str, Any]:
    """A report without rows."""
    return {
        "format": FORMAT,
        "complete": False,
        "surroundings": surroundings,
        "sessions": [],
        "rows": [],
        "overhead": [],
    }


def read(path: Path) -> dict[str, Any]:
    """A report by ``schema/bench-report.schema.json``.

    Raises:
        BenchError: the file cannot be read, is no report of this format, or is damaged.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BenchError(f"{path} cannot be read as a report: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BenchError(f"{path} is no benchmark report of format {FORMAT}")
    wrong = fault_by_schema(found, "bench-report.schema.json")
    if wrong:
        raise BenchError(
            f"{path} is a damaged report: {wrong[:200]}; name another file, or remove this one"
        )
    return found


def check_writable(path: Path) -> None:
    """Says before anything is measured what would keep it from being written.

    Raises:
        BenchError: nothing can be written beside ``path``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise BenchError(f"{path} cannot be written: {error}") from error
    if path.is_dir():
        raise BenchError(f"{path} cannot be written: it is a folder")


def write(report: dict[str, Any], path: Path) -> None:
    """Replaces the file in one step: a reader, or an interruption, never meets half of it.

    Raises:
        BenchError: the file cannot be written.
    """
    try:
        replace(path, (json.dumps(report, indent=1) + "\n").encode("ascii"))
    except OSError as error:
        raise BenchError(f"{path} cannot be written: {error}") from error


def find_row(report: dict[str, Any], op: str, workload: str) -> dict[str, Any] | None:
    """The report's row of a workload."""
    for row in report["rows"]:
        if (row["op"], row["workload"]) == (op, workload):
            found: dict[str, Any] = row
            return found
    return None
