"""``tileops bench``: runs the workloads, says how it goes, and writes the report."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tileops.core.bench import reports
from tileops.core.bench.baselines import baselines_of
from tileops.core.bench.compare import compare
from tileops.core.bench.limits import Ceilings, matrix_dtype, measure_ceilings
from tileops.core.bench.overhead import OTHERS, overhead
from tileops.core.bench.peers import ADAPTERS, PeerProcess, find_adapters, parse_peers
from tileops.core.bench.plots import figure_class
from tileops.core.bench.readings import table
from tileops.core.bench.rows import make_case, row_of
from tileops.core.bench.subjects import AGAIN, INDUCTOR, OURS
from tileops.core.bench.surroundings import clocks, now, surroundings
from tileops.core.bench.timers import CpuTimer, CudaTimer, timer_for
from tileops.core.choice import Choice, chosen
from tileops.core.contract import load_contracts
from tileops.core.contract.plan import known_device
from tileops.core.errors import BenchError, TileOpsError
from tileops.core.op import Op
from tileops.manifest.calls import resolve
from tileops.manifest.model import Workload

__all__ = ["Options", "bench"]

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked of a run.

    Attributes:
        choice: the ops, families and workloads.
        device: where to run; None is the first card, or the CPU where there is none.
        peers: ``NAME``, ``FILE.py``, or either with ``=PLACE``; None is every adapter of
            ``tools/peers``.
        json: where the report goes, and where an interrupted one is taken up.
        html: where the page with plots goes.
        old: a report to compare with.
        overhead: whether the cost of a call and of a start is measured, and not the workloads.
        profile: ``ncu`` or ``torch``: show what bounds the one workload, instead.
        measures: the measures; None is all that the device has.
        rounds: samples of each subject by each measure.
        backend: what ``torch.compile`` compiles with.
        ceiling_bytes: the size of the copy that measures the bandwidth; None is the usual.
    """

    choice: Choice = dataclasses.field(default_factory=Choice)
    device: str | None = None
    peers: Sequence[str] | None = None
    json: Path | None = None
    html: Path | None = None
    old: Path | None = None
    overhead: bool = False
    profile: str | None = None
    measures: Sequence[str] | None = None
    rounds: int = 9
    backend: str = "inductor"
    ceiling_bytes: int | None = None


def bench(
    options: Options,
    say: Say = lambda line: print(line, flush=True),
    timer: CpuTimer | CudaTimer | None = None,
) -> int:
    """Runs; 0 where everything that was asked of our ops was measured, 130 where interrupted."""
    try:
        return _bench(options, say, timer)
    except (TileOpsError, ValueError) as error:
        print(f"tileops bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = "" if options.json is None else f"; the same command takes up {options.json}"
        print(f"tileops bench: interrupted{kept}", file=sys.stderr)
        return 130


def _bench(options: Options, say: Say, timer: CpuTimer | CudaTimer | None) -> int:
    load_contracts()
    _check_together(options)
    device = _device(options.device)
    timer = timer or timer_for(device)
    _check_measures(options.measures, timer)
    old = None if options.old is None else reports.read(options.old)
    work = list(_workloads(options.choice))
    if options.profile is not None:
        return _profile(work, options.profile, device, say)
    if options.json is not None:
        reports.check_writable(options.json)
    if options.html is not None:
        figure_class()
        reports.check_writable(options.html)
    unmade = 0
    measures = options.measures or _measures(timer)
    report = _taken_up(options, surroundings(device), measures, say)
    if options.overhead:
        overhead(
            work,
            device,
            options.rounds,
            say,
            found=report["overhead"],
            save=lambda: _save(report, options),
        )
    else:
        with contextlib.ExitStack() as stack:
            unmade = _run(options, work, report, device, timer, stack, say)
    report["complete"] = True
    _save(report, options)
    for line in table(report):
        say(line)
    if old is not None:
        say("")
        for line in compare(old, report):
            say(line)
    if options.html is not None:
        from tileops.core.bench.page import write_page

        for path in write_page(report, options.html):
            say(f"wrote {path}")
    ours = [row["subjects"][0]["status"] for row in report["rows"]]
    failed = [one for one in report["overhead"] if one["problem"] and OTHERS not in one["what"]]
    complete = all(status == "timed" for status in ours) and not failed and not unmade
    return 0 if complete else 1


def _check_together(options: Options) -> None:
    """What is asked for beside ``--profile`` or ``--overhead`` must mean something there."""
    given = {
        "--peer": options.peers,
        "--measure": options.measures,
        "--json": options.json,
        "--html": options.html,
        "--compare": options.old,
    }
    if options.profile is not None:
        mode, unused = f"--profile {options.profile}", list(given)
        if options.overhead:
            raise BenchError(f"{mode} and --overhead are two runs: name one of them")
    elif options.overhead:
        mode, unused = "--overhead", ["--peer", "--measure"]
    else:
        return
    for option in unused:
        if given[option]:
            raise BenchError(f"{option} means nothing beside {mode}: leave it out")


def _device(name: str | None) -> torch.device:
    if name is None:
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    device = torch.device(known_device(name))
    if device.type not in ("cpu", "cuda"):
        raise BenchError(f"--device {name}: there are timers for cpu and cuda only")
    return device


def _check_measures(asked: Sequence[str] | None, timer: CpuTimer | CudaTimer) -> None:
    known = _measures(timer)
    for measure in asked or ():
        if measure not in known:
            raise BenchError(
                f"--measure {measure}: there is no such measure on this device; they are "
                f"{', '.join(known)}"
            )


def _measures(timer: CpuTimer | CudaTimer) -> list[str]:
    return [*timer.measures, f"{timer.host}_compiled"]


def _profile(
    work: Sequence[tuple[type[Op], Workload]], tool: str, device: torch.device, say: Say
) -> int:
    from tileops.core.bench.profile import by_ncu, by_torch

    if len(work) != 1:
        raise BenchError(
            f"a profile is of one workload, and {len(work)} are chosen: name it with --op and "
            f"--workload"
        )
    for line in (by_ncu if tool == "ncu" else by_torch)(*work[0], device):
        say(line)
    return 0


def _workloads(choice: Choice) -> Iterator[tuple[type[Op], Workload]]:
    for cls in chosen(choice):
        found = [
            workload
            for workload in cls.entry.workloads
            if not choice.workloads or workload.label in choice.workloads
        ]
        if not found and cls.entry.name in choice.ops:
            there = ", ".join(workload.label for workload in cls.entry.workloads) or "none"
            raise BenchError(f"{cls.entry.name} has none of the workloads; it has: {there}")
        yield from ((cls, workload) for workload in found)


def _taken_up(
    options: Options, where: dict[str, Any], measures: Sequence[str], say: Say
) -> dict[str, Any]:
    """The interrupted report that the file holds, or a new one."""
    if options.json is not None and options.json.exists():
        found = reports.read(options.json)
        # A report has workloads or overhead; one of the other kind is begun anew.
        kept, other = ("overhead", "rows") if options.overhead else ("rows", "overhead")
        if not found["complete"] and found["surroundings"] == where and not found[other]:
            if _asked_otherwise(options, found, measures):
                raise BenchError(
                    f"{options.json} was interrupted in a run of other --measure or --rounds, and "
                    f"rows of both would be mixed: give what that run was given, or another file"
                )
            what = "costs" if options.overhead else "rows"
            say(f"taking up {options.json}, which has {len(found[kept])} {what}")
            return found
        if not found["complete"] and not found[other]:
            say(f"{options.json} was interrupted elsewhere or with other versions: starting anew")
    return reports.begin(where)


def _asked_otherwise(options: Options, report: dict[str, Any], measures: Sequence[str]) -> bool:
    """Whether the report's right rows show that they were made with other options."""
    ours = [row["subjects"][0]["samples"] for row in report["rows"]]
    taken = {measure for samples in ours for measure in samples}
    rounds = {len(values) for samples in ours for values in samples.values()}
    return bool(taken and taken != set(measures)) or bool(rounds - {options.rounds})


def _save(report: dict[str, Any], options: Options) -> None:
    if options.json is not None:
        reports.write(report, options.json)


def _run(
    options: Options,
    work: Sequence[tuple[type[Op], Workload]],
    report: dict[str, Any],
    device: torch.device,
    timer: CpuTimer | CudaTimer,
    stack: contextlib.ExitStack,
    say: Say,
) -> int:
    """Adds the rows that are not there yet; how many could not be made."""
    missing = [
        (cls, workload)
        for cls, workload in work
        if reports.find_row(report, cls.entry.name, workload.label) is None
    ]
    if not missing:
        return 0
    unmade = 0
    named = find_adapters() if options.peers is None else options.peers
    taken = {OURS, AGAIN, INDUCTOR, *(one.name for cls, _ in work for one in baselines_of(cls))}
    parsed = parse_peers(named, taken, ADAPTERS)
    names = {name for name, *_ in parsed}
    for row in report["rows"]:
        there = {subject["name"] for subject in row["subjects"]} - taken
        if row["subjects"][0]["status"] == "timed" and there != names:
            raise BenchError(
                f"{options.json} was interrupted in a run beside {', '.join(sorted(there)) or 'no'}"
                f" peers, and this one is beside {', '.join(sorted(names)) or 'none'}: give --peer "
                f"as that run did, or another file"
            )
    peers = [stack.enter_context(PeerProcess(*one)) for one in parsed]
    for peer in peers:
        say(f"peer {peer.name}: {peer.missing or peer.version}")
    ceilings = _begin_session(options, missing, report, device, timer, say)
    for number, (cls, workload) in enumerate(work, start=1):
        title = f"[{number}/{len(work)}] {cls.entry.name} {workload.label}"
        if reports.find_row(report, cls.entry.name, workload.label) is not None:
            say(f"{title}: there already")
            continue
        say(title)
        seed = secrets.randbits(32)
        try:
            case = make_case(cls, workload, device, seed)
        except Exception as error:
            # Whatever a reference or a formula raises is this row's end, not the run's.
            kind = "" if isinstance(error, TileOpsError) else f"{type(error).__name__}: "
            say(f"{title}: no row: {kind}{error}")
            unmade += 1
            continue
        row = row_of(
            case,
            timer,
            peers,
            ceilings,
            rounds=options.rounds,
            backend=options.backend,
            asked=options.measures,
        )
        report["rows"].append({"session": len(report["sessions"]) - 1, "seed": seed, **row})
        del case
        if device.type == "cuda":
            torch.cuda.empty_cache()
        _save(report, options)
    return unmade


def _begin_session(
    options: Options,
    work: Sequence[tuple[type[Op], Workload]],
    report: dict[str, Any],
    device: torch.device,
    timer: CpuTimer | CudaTimer,
    say: Say,
) -> Ceilings:
    """Measures the ceilings and notes them with the clocks; rows name the session they are of."""
    dtypes = sorted({matrix_dtype(resolve(cls.entry, one)) or "" for cls, one in work} - {""})
    say(f"measuring a copy and products of {', '.join(dtypes) or 'no dtype'}")
    ceilings = measure_ceilings(timer, device, dtypes, size=options.ceiling_bytes)
    report["sessions"].append(
        {
            "date": now(),
            "clocks": clocks(device),
            "rounds": options.rounds,
            "bandwidth": ceilings.bandwidth,
            "rates": dict(ceilings.rates),
        }
    )
    return ceilings
