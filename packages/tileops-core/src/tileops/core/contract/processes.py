"""The two fresh processes that a run's cases share: one compiles and exports, one finds and loads.

They go on beside the run's other checks. Each writes a line before and after each case, so that
one that dies is known to have died there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tileops.core.contract.check import Blocked
from tileops.core.contract.subject import Subject
from tileops.core.errors import ContractError

__all__ = [
    "CACHES",
    "Place",
    "Processes",
    "TerminatedError",
    "ended_in_order",
    "place_of",
    "run_child",
]

Place = tuple[str, str, str]
"""A case, a device, and the target that serves it there, "" for whom a plain call is served by."""

CACHES = ("fxgraph_cache", "autograd_cache")
"""Inductor's and AOTAutograd's, as their counters are called."""

FIRST, SECOND = "first", "second"

_PATIENCE = 10.0
"""The seconds that a process has to end in order."""


class TerminatedError(BaseException):
    """SIGTERM came: what runs beside ends, and what was found is kept, as on an interruption."""


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Inside, SIGTERM, by which CI services and ``timeout`` end a run, raises."""

    def terminated(*_: object) -> None:
        raise TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def place_of(subject: Subject) -> Place:
    """What a fresh process needs to know of the subject."""
    return subject.case.name, str(subject.device), subject.target or ""


class Processes:
    """Both processes of some cases, one after the other.

    Attributes:
        work: the cases, each with its device and its target, which is the default there.
    """

    def __init__(self, work: Sequence[Place], seed: int) -> None:
        self.work = list(work)
        self._folder = tempfile.TemporaryDirectory(prefix="tileops-contract-")
        self._request = {
            "cases": self.work,
            "seed": seed,
            "folder": self._folder.name,
        }
        self._records: dict[str, list[dict[str, Any]]] = {FIRST: [], SECOND: []}
        self._ends: dict[str, str] = {}
        self._child: subprocess.Popen[str] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins with them, where there is work."""
        if self.work:
            self._thread.start()

    def wait(self) -> None:
        """Waits until both have ended."""
        if self.work:
            self._thread.join()

    def close(self) -> None:
        """Ends what goes on, and removes what was left."""
        self._stopped = True
        while self._thread.is_alive():
            child = self._child
            if child is not None:
                child.kill()
            self._thread.join(0.1)
        self._folder.cleanup()

    def _run(self) -> None:
        folder = Path(self._folder.name)
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
            # As the run itself: what dynamo learnt of sizes elsewhere is none of this.
            "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0",
        }
        for which in (FIRST, SECOND):
            if self._stopped:
                return
            output = folder / f"{which}.jsonl"
            child = start_child({**self._request, "do": which, "output": str(output)}, caches)
            self._child = child
            _, errors = child.communicate()
            lines = output.read_text().splitlines() if output.exists() else []
            self._records[which] = [json.loads(line) for line in lines]
            self._ends[which] = "" if child.returncode == 0 else _told(child.returncode, errors)

    def found(self, subject: Subject, do: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What both processes found of the subject when they did ``do``.

        Raises:
            ContractError: it failed there.
            Blocked: the process died before it came to it.
        """
        self.wait()
        place = place_of(subject)
        return self._of(FIRST, place, do), self._of(SECOND, place, do)

    def _of(self, which: str, place: Place, do: str) -> dict[str, Any]:
        begun = ""
        for record in self._records[which]:
            begun = record["place"][0] if record["seconds"] is None else ""
            if (*record["place"], record["do"]) != (*place, do) or begun:
                continue
            if record["problem"]:
                raise ContractError(f"in the {which} process: {record['problem']}")
            return record
        end = self._ends.get(which, "it was not started")
        if begun == place[0] or not begun:
            raise ContractError(f"in the {which} process: {end or 'nothing is known of the case'}")
        raise Blocked(
            begun,
            ContractError(
                f"the {which} process {end} there; --isolate gives each case processes of its own"
            ),
        )


def start_child(request: dict[str, Any], environment: dict[str, str]) -> subprocess.Popen[str]:
    """A fresh process that does what ``request`` says; see ``child``."""
    return subprocess.Popen(
        [sys.executable, "-m", "tileops.core.contract.child", json.dumps(request)],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def run_child(request: dict[str, Any]) -> str:
    """Runs one to its end; returns how it ended where that was badly, else ""."""
    child = start_child(request, {})
    try:
        _, errors = child.communicate()
    except BaseException:
        # It has processes of its own, which it ends.
        child.terminate()
        try:
            child.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
    return "" if child.returncode == 0 else _told(child.returncode, errors)


def _told(code: int, errors: str) -> str:
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"{how}: {' | '.join(lines[-3:])}" if lines else how
