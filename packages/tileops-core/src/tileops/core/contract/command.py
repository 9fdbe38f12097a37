"""``tileops contract``: checks what is installed, says how it goes, and writes the report."""

from __future__ import annotations

import dataclasses
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tileops.core.choice import Choice
from tileops.core.contract import report as reports
from tileops.core.contract.compare import compare
from tileops.core.contract.files import require_writable
from tileops.core.contract.installed import load_all
from tileops.core.contract.isolated import run_isolated
from tileops.core.contract.junit import write_junit
from tileops.core.contract.plan import (
    devices_here,
    known_choice,
    known_device,
    known_seed,
    known_targets,
)
from tileops.core.contract.processes import TerminatedError, ended_in_order
from tileops.core.contract.progress import Progress
from tileops.core.contract.run import run
from tileops.core.contract.table import table
from tileops.core.errors import ContractError, TileOpsError

__all__ = ["Options", "contract"]

USAGE = 2


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked of a run.

    Attributes:
        choice: the ops and families.
        targets: the targets that are checked; none is each that serves a case.
        devices: where to run; none is the CPU, and the first card where there is one.
        isolate: whether each case has a process of its own.
        json: where the report goes.
        junit: where it goes as JUnit XML.
        old: a report to compare with.
        seed: where random inputs come from; None draws one.
    """

    choice: Choice = dataclasses.field(default_factory=Choice)
    targets: Sequence[str] = ()
    devices: Sequence[str] = ()
    isolate: bool = False
    json: Path | None = None
    junit: Path | None = None
    old: Path | None = None
    seed: int | None = None


def contract(
    options: Options, say: Callable[[str], None] = lambda line: print(line, flush=True)
) -> int:
    """Runs; 0 where all checks held, 1 where one did not, 2 where nothing was checked."""
    try:
        with ended_in_order():
            return _contract(options, say)
    except (TileOpsError, ValueError) as error:
        print(f"tileops contract: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\ntileops contract: interrupted", file=sys.stderr)
        return 130
    except TerminatedError:
        print("\ntileops contract: terminated", file=sys.stderr)
        return 128 + signal.SIGTERM


def _contract(options: Options, say: Callable[[str], None]) -> int:
    problems = load_all(options.choice.families)
    known_choice(options.choice, problems)
    known_targets(options.targets)
    devices = list(dict.fromkeys(map(known_device, options.devices))) or devices_here()
    old = None if options.old is None else reports.read(options.old)
    require_writable([options.json, options.junit])
    seed = secrets.randbits(31) if options.seed is None else known_seed(options.seed)
    asked = {
        "ops": list(options.choice.ops),
        "families": list(options.choice.families),
        "targets": list(options.targets),
        "devices": devices,
        "isolate": options.isolate,
    }
    report = reports.begin(asked, devices, seed)
    report["problems"] = [{"what": what, "reason": why} for what, why in problems.items()]
    progress = Progress()
    make = run_isolated if options.isolate else run
    try:
        make(
            options.choice,
            devices,
            targets=options.targets,
            seed=seed,
            step=progress,
            report=report,
        )
    except BaseException:
        progress.end()
        # What an interrupted run found is kept; it says that it is not complete.
        _keep(report, options)
        raise
    progress.end()
    unwritten: ContractError | None = None
    try:
        _keep(report, options)
    except ContractError as error:
        # What it took so long to find is to be read in any case.
        unwritten = error
    for line in table(report):
        say(line)
    if unwritten is not None:
        raise unwritten
    if old is not None:
        say("")
        for line in compare(old, report):
            say(line)
    return reports.verdict(report)


def _keep(report: dict[str, Any], options: Options) -> None:
    if options.json is not None:
        reports.write(report, options.json)
    if options.junit is not None:
        write_junit(report, options.junit)
