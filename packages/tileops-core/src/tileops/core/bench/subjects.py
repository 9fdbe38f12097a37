"""What is timed on one workload: the op, its alternatives, and the peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from tileops.core.bench.baselines import baselines_of
from tileops.core.bench.correct import SLACK_OF_OTHERS, Truth, gathered, judge, run_once
from tileops.core.bench.inputs import call_bytes
from tileops.core.bench.peers import PeerProcess
from tileops.core.bench.timers import CpuTimer, CudaTimer, Sampler, bound, copies
from tileops.core.errors import BenchError
from tileops.core.op import Op
from tileops.manifest.calls import Call

__all__ = ["AGAIN", "INDUCTOR", "OURS", "Case", "Subject", "local_subjects", "peer_subject"]

OURS, AGAIN, INDUCTOR = "tileops", "tileops again", "inductor"


@dataclasses.dataclass(frozen=True)
class Case:
    """A workload's call with its arguments, and what the call should give."""

    op: Op
    label: str
    call: Call
    arguments: dict[str, Any]
    device: torch.device
    truth: Truth


@dataclasses.dataclass
class Subject:
    """Somebody who makes the call.

    Attributes:
        name: what reports call it.
        version: the version of the library, where it is a peer.
        problem: why it is not timed, "" if it is.
        status: ``timed``, ``refused`` (its result is wrong), ``failed`` or ``missing``.
        error: how far its result is off, in tolerances.
        samplers: by measure, what takes a sample.
    """

    name: str
    version: str = ""
    status: str = "timed"
    problem: str = ""
    error: float = 0.0
    samplers: dict[str, Sampler] = dataclasses.field(default_factory=dict)

    def fail(self, status: str, problem: str) -> Subject:
        """Takes it out of the timing."""
        self.status, self.problem, self.samplers = status, problem, {}
        return self


def _judged(subject: Subject, case: Case, results: Mapping[str, Any], slack: float) -> bool:
    verdict = judge(case.truth, results, slack)
    subject.error = verdict.error if not verdict.problem else 0.0
    if verdict.problem:
        subject.fail("refused", verdict.problem)
    return not verdict.problem


def local_subjects(
    case: Case,
    timer: CpuTimer | CudaTimer,
    *,
    backend: str = "inductor",
    asked: Collection[str] | None = None,
) -> list[Subject]:
    """The op twice, its baselines, and what ``torch.compile`` makes of PyTorch's own.

    ``asked`` are the measures; None is all. The op's second set of samplers gives the noise floor.
    Whoever computes something wrong, or raises, is there without samplers; where that is the op,
    it is alone.
    """
    # A fresh compiler, once: the samplers made below rely on what it keeps.
    torch._dynamo.reset()
    sets = copies(case.arguments, timer.sets(call_bytes(case.call)))
    plain = [one for one in timer.measures if asked is None or one in asked]
    compiled = [timer.host] if asked is None or f"{timer.host}_compiled" in asked else []
    ours = _local(Subject(OURS), case, timer, sets, case.op, plain, 1.0)
    function = _compiled(case.op, backend)
    _local(ours, case, timer, sets, function, compiled, 1.0, "_compiled", False)
    if ours.status != "timed":
        return [ours]
    again = _local(Subject(AGAIN), case, timer, sets, case.op, plain, 1.0)
    _local(again, case, timer, sets, function, compiled, 1.0, "_compiled", False)
    found = [ours, again]
    for baseline in baselines_of(type(case.op)):
        call = _of_baseline(baseline.function, case.op)
        subject = Subject(baseline.name, torch.__version__)
        if baseline.devices is not None and case.device.type not in baseline.devices:
            kinds = " and ".join(baseline.devices)
            found.append(subject.fail("missing", f"it runs on {kinds} only"))
            continue
        found.append(_local(subject, case, timer, sets, call, plain, SLACK_OF_OTHERS))
        if baseline.name == "torch":
            other = Subject(INDUCTOR, torch.__version__)
            slack = SLACK_OF_OTHERS
            function = _compiled(call, backend)
            # Its host time is a compiled call's, and stands beside ours.
            _local(other, case, timer, sets, function, compiled, slack, "_compiled", False)
            device = [measure for measure in plain if measure != timer.host]
            _local(other, case, timer, sets, function, device, slack, poison=False)
            found.append(other)
    return found


def _of_baseline(function: Callable[..., Any], op: Op) -> Callable[..., Any]:
    return lambda **arguments: function(op, **arguments)


def _compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(
        function, fullgraph=True, dynamic=False, backend=backend
    )
    return compiled


def _local(
    subject: Subject,
    case: Case,
    timer: CpuTimer | CudaTimer,
    sets: Sequence[dict[str, Any]],
    function: Callable[..., Any],
    measures: Sequence[str],
    slack: float,
    suffix: str = "",
    poison: bool = True,
) -> Subject:
    """Adds samplers of ``function`` if its result is right.

    ``poison`` is off for compiled code, which is specialised on the mode that fills memory: what
    is checked would not be what is timed.
    """
    if subject.status != "timed" or (suffix and not measures):
        return subject
    try:
        entry = type(case.op).entry
        results = run_once(function, case.call, entry, case.arguments, poison=poison)
        if _judged(subject, case, results, slack):
            calls = bound(function, sets)
            for measure in measures:
                subject.samplers[measure + suffix] = timer.sampler(measure, calls)
    except Exception as error:
        # Whatever a kernel or a compiler raises is a line of the report, not the end of the run.
        subject.fail("failed", f"{type(error).__name__}: {error}")
    return subject


def peer_subject(
    peer: PeerProcess,
    case: Case,
    timer: CpuTimer | CudaTimer,
    asked: Collection[str] | None = None,
) -> Subject:
    """The peer, its result checked as everybody's is."""
    subject = Subject(peer.name, peer.version)
    if peer.missing:
        return subject.fail("missing", peer.missing)
    entry = type(case.op).entry
    try:
        found = peer.prepare(entry.name, dict(case.call.params), case.arguments, case.device)
        if isinstance(found, str):
            return subject.fail("missing", found)
        outputs, written = found
        on_device = {
            name: value.to(case.device) if isinstance(value, torch.Tensor) else value
            for name, value in written.items()
        }
        if _judged(
            subject, case, gathered(case.call, entry, list(outputs), on_device), SLACK_OF_OTHERS
        ):
            sets = timer.sets(call_bytes(case.call))
            for measure in timer.measures:
                if asked is not None and measure not in asked:
                    continue
                subject.samplers[measure] = peer.sampler(measure, sets)
    except BenchError as error:
        subject.fail("failed", str(error))
    except (OSError, RuntimeError, TypeError) as error:
        # Its arguments or its results fit no memory or no file, or are of no kind that JSON has.
        subject.fail("failed", f"{type(error).__name__}: {error}")
    return subject
