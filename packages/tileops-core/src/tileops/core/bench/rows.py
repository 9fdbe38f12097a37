"""One row of a report: a workload, and everybody's samples on it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from tileops.core.bench.correct import truth_of
from tileops.core.bench.inputs import make_arguments
from tileops.core.bench.limits import Ceilings, limit_of, matrix_dtype
from tileops.core.bench.peers import PeerProcess
from tileops.core.bench.subjects import AGAIN, Case, Subject, local_subjects, peer_subject
from tileops.core.bench.timers import CpuTimer, CudaTimer
from tileops.core.factory import place
from tileops.core.op import Op
from tileops.manifest.calls import least_work, resolve
from tileops.manifest.model import Workload

__all__ = ["make_case", "measure", "row_of"]


def make_case(cls: type[Op], workload: Workload, device: torch.device, seed: int) -> Case:
    """A new instance of the op, fresh random arguments, and what the call should give.

    Raises:
        BenchError: the workload does not say what some input holds.
        TileOpsError: the reference does not serve the call.
    """
    call = place(cls.entry, resolve(cls.entry, workload), device)
    op = cls(**call.params)
    arguments = make_arguments(cls.__name__, call, device, seed)
    return Case(op, workload.label, call, arguments, device, truth_of(op, call, arguments))


def measure(subjects: Sequence[Subject], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Samples by subject and measure; in each round everybody takes a turn, ever another first.

    A subject that fails on the way is taken out, with its samples.
    """
    found: dict[str, dict[str, list[float]]] = {subject.name: {} for subject in subjects}
    measures = dict.fromkeys(name for subject in subjects for name in subject.samplers)
    for name in measures:
        for number in range(rounds):
            first = number % len(subjects)
            for subject in [*subjects[first:], *subjects[:first]]:
                sampler = subject.samplers.get(name)
                if sampler is None:
                    continue
                try:
                    found[subject.name].setdefault(name, []).append(sampler())
                except Exception as error:
                    subject.fail("failed", f"{type(error).__name__}: {error}")
                    found[subject.name].clear()
    return found


def row_of(
    case: Case,
    timer: CpuTimer | CudaTimer,
    peers: Sequence[PeerProcess],
    ceilings: Ceilings,
    *,
    rounds: int,
    backend: str = "inductor",
    asked: Collection[str] | None = None,
) -> dict[str, Any]:
    """Checks, times and describes one workload, as the report's schema has it.

    Others are timed only beside an op whose result is right: without it there is nothing to
    compare.
    """
    entry = type(case.op).entry
    with torch.no_grad():
        subjects = local_subjects(case, timer, backend=backend, asked=asked)
        if subjects[0].status == "timed":
            subjects += [peer_subject(peer, case, timer, asked) for peer in peers]
        samples = measure(subjects, rounds)
    flops, nbytes = least_work(entry, case.call)
    limit = limit_of(flops, nbytes, matrix_dtype(case.call), ceilings)
    workload = next(one for one in entry.workloads if one.label == case.label)
    for peer in peers:
        peer.drop()
    return {
        "op": entry.name,
        "family": entry.family,
        "workload": case.label,
        "model": workload.model,
        "phase": workload.phase,
        "inputs": {
            name: {"dtype": facts.dtype, "shape": list(facts.shape)}
            for name, facts in case.call.inputs.items()
            if facts is not None
        },
        "target": case.op.serving_target,
        "flops": flops,
        "bytes": nbytes,
        "limit": {"seconds": limit.seconds, "bound": limit.bound},
        "again": samples.get(AGAIN, {}),
        "subjects": [
            {
                "name": subject.name,
                "version": subject.version,
                "status": subject.status,
                "problem": subject.problem,
                "error": subject.error,
                "samples": samples.get(subject.name, {}),
            }
            for subject in subjects
            if subject.name != AGAIN
        ],
    }
