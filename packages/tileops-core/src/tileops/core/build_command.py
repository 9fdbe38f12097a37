"""``tileops build``: fills the store with the kernels that the ops' workloads need."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from tileops.core import tilelang_backend
from tileops.core.choice import Choice, chosen, ordered_classes
from tileops.core.conformance import meta_arguments
from tileops.core.errors import FamilyError, TargetError, TileOpsError
from tileops.core.families import load_families
from tileops.core.op import Op
from tileops.core.planning import Build, planning
from tileops.core.programs import program_for
from tileops.core.store import Store, open_store
from tileops.core.store.key import UnkeyedError, key_text, spell_identity
from tileops.manifest.calls import resolve

__all__ = ["BUILT", "FAILED", "REFUSED", "THERE", "Choice", "build_all"]

BUILT, THERE, REFUSED, FAILED = "built", "already there", "not served", "failed"


class _Wanted(NamedTuple):
    """The ``number``-th kernel that one workload needs: what a worker process is told."""

    op: str
    workload: str
    arch: str
    number: int


class _Task(NamedTuple):
    """One program to build, for the workloads that share it; or why there is none."""

    wanted: _Wanted
    title: str
    labels: list[str]
    key: str
    problem: str = ""
    outcome: str = FAILED


def build_all(
    choice: Choice, archs: Sequence[str], jobs: int = 1, say: Callable[[str], None] = print
) -> int:
    """Builds what is not stored yet, saying how it goes; 0 where all of it is there afterwards.

    No GPU is needed. Without ``archs``, the architectures of the visible GPUs are built for.
    ``jobs`` processes build side by side: TileLang builds one kernel of a process at a time.
    """
    try:
        load_families()
    except FamilyError as error:
        return _fault(str(error))
    store = open_store()
    if store is None:
        return _fault("the store is off: set TILEOPS_CACHE_DIR to the folder to fill")
    try:
        archs = [tilelang_backend.checked_arch(arch) for arch in archs] or _visible_archs()
        ops = chosen(choice)
    except ValueError as error:
        return _fault(str(error))
    if not archs:
        return _fault("no GPU is visible: say for which to build, as in --arch sm_90a")
    tasks = list(_tasks(ops, choice, archs))
    counts = dict.fromkeys((BUILT, THERE, REFUSED, FAILED), 0)
    for number, (task, outcome, detail) in enumerate(_outcomes(tasks, store, jobs), start=1):
        counts[outcome] += 1
        labels = ", ".join(dict.fromkeys(task.labels))
        say(f"[{number}/{len(tasks)}] {task.title} for {labels}: {outcome}{detail}")
    parts = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    say(f"{', '.join(parts) or 'no kernels to build'}; the store is {store.folder}")
    return 1 if counts[FAILED] or not (counts[BUILT] or counts[THERE]) else 0


def _fault(message: str) -> int:
    print(f"tileops build: {message}", file=sys.stderr)
    return 1


def _visible_archs() -> list[str]:
    count = torch.cuda.device_count()
    return sorted({tilelang_backend.device_arch(index) for index in range(count)})


def _tasks(ops: Sequence[type[Op]], choice: Choice, archs: Sequence[str]) -> Iterator[_Task]:
    """The distinct programs, each with all of its workloads, in the order of the ops."""
    found: dict[str, _Task] = {}
    for arch in archs:
        for cls in ops:
            for workload in cls.entry.workloads:
                if choice.workloads and workload.label not in choice.workloads:
                    continue
                for task in _planned(cls, workload.label, arch):
                    at = task.key or f"{task.title} {task.problem}"
                    if at in found:
                        found[at].labels.extend(task.labels)
                    else:
                        found[at] = task
    yield from found.values()


def _planned(cls: type[Op], label: str, arch: str) -> Iterator[_Task]:
    name = cls.entry.name
    try:
        with tilelang_backend.assume_arch(arch):
            requests = list(_requests(cls, label))
    except Exception as error:
        # An op's forward may do anything; what it raises is what the user has to know.
        wanted = _Wanted(name, label, arch, 0)
        yield _Task(wanted, f"{name} {arch}", [label], "", f": {error}")
        return
    for number, request in enumerate(requests):
        wanted = _Wanted(name, label, arch, number)
        title = f"{type(request.op).__name__} {arch}"
        try:
            with tilelang_backend.assume_arch(arch):
                kernel, identity, _ = request.build()
            spelling = spell_identity(kernel, identity)
            key = key_text(kernel, spelling)
        except TargetError as error:
            yield _Task(wanted, title, [label], "", f": {error}", REFUSED)
        except (TileOpsError, UnkeyedError) as error:
            yield _Task(wanted, title, [label], "", f": {error}")
        else:
            yield _Task(wanted, f"{title} {kernel.__name__}{spelling}", [label], key)


def _requests(cls: type[Op], label: str) -> Iterator[Any]:
    workload = next(w for w in cls.entry.workloads if w.label == label)
    call = resolve(cls.entry, workload)
    op = cls(**call.params)
    with planning() as requests:
        op(**meta_arguments(call))
    yield from requests


def _outcomes(tasks: Sequence[_Task], store: Store, jobs: int) -> Iterator[tuple[_Task, str, str]]:
    """Each task with what became of it, as soon as that is known."""
    cold = []
    for task in tasks:
        if task.problem:
            yield task, task.outcome, task.problem
        elif store.holds(task.key):
            yield task, THERE, ""
        else:
            cold.append(task)
    if jobs == 1 or len(cold) < 2:
        for task in cold:
            yield task, *_finished(task, store, *_build(task.wanted))
        return
    with concurrent.futures.ProcessPoolExecutor(
        min(jobs, len(cold)),
        # Not forked: PyTorch's and TileLang's threads would not be there in the child.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=load_families,
    ) as pool:
        running = {pool.submit(_build, task.wanted): task for task in cold}
        for future in concurrent.futures.as_completed(running):
            error = future.exception()
            result = future.result() if error is None else (0.0, str(error))
            yield running[future], *_finished(running[future], store, *result)


def _finished(task: _Task, store: Store, seconds: float, error: str) -> tuple[str, str]:
    if error:
        return FAILED, f": {error}"
    if not store.holds(task.key):
        return FAILED, ": it was built, but the store did not take it; the log says why"
    return BUILT, f" in {seconds:.1f} s"


def _build(wanted: _Wanted) -> tuple[float, str]:
    """Builds one program into the store; the seconds that it took, and what went wrong."""
    cls = next(cls for cls in ordered_classes() if cls.entry.name == wanted.op)
    start = time.perf_counter()
    try:
        with tilelang_backend.assume_arch(wanted.arch):
            request = list(_requests(cls, wanted.workload))[wanted.number]
            kernel, identity, build = Build(*request.build())
            program_for(
                identity,
                build,
                device=torch.device("meta"),
                op=type(request.op).__name__,
                shape=repr(request.call),
                kernel=kernel,
            )
    except Exception as error:
        return time.perf_counter() - start, str(error)
    return time.perf_counter() - start, ""
