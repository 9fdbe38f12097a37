"""What was built or loaded, and an alarm for what is built when warm-up is over.

A process that serves calls :func:`warm_up_done` once its ops are warm. From then on a program that
has to be built, or loaded from the store, stalled a request: it is logged as a warning on the
logger ``tileops``, and counted. A new plan, such as that of a new number of rows, is neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from tileops.core.locks import ForkSafeLock

__all__ = [
    "BUILT",
    "LOADED",
    "PRESENT",
    "ProgramUse",
    "builds_after_warm_up",
    "collecting",
    "note_present",
    "noting",
    "warm_up_done",
]

BUILT, LOADED, PRESENT = "built", "loaded from the store", "already there"

_log = logging.getLogger("tileops")
_lock = ForkSafeLock()
_local = threading.local()
_done = False
_late = 0


@dataclasses.dataclass(frozen=True)
class ProgramUse:
    """A program that a call asked for.

    ``op`` is the class that asked and ``call`` its call spec as text; ``identity`` is what the
    kernel says its build depends on. ``origin`` is ``"built"``, ``"loaded from the store"`` or
    ``"already there"`` (in this process, from another call or instance), ``seconds`` what that
    took.
    """

    op: str
    call: str
    identity: Hashable
    origin: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.op}: {self.identity} {self.origin} in {self.seconds:.2f} s"


def warm_up_done(done: bool = True) -> None:
    """Says that this process is warm: a later build, or load from the store, raises the alarm.

    The alarm is one warning on the logger ``tileops`` for each, and the counter
    :func:`builds_after_warm_up`. What ``op.warm_up`` builds raises none: it was asked for.
    ``done=False`` takes this back, as before another model is loaded; the counter keeps its value.
    """
    global _done
    _done = bool(done)


def builds_after_warm_up() -> int:
    """How many programs this process built or loaded while warm-up was over; it never falls."""
    return _late


@contextlib.contextmanager
def collecting() -> Iterator[list[ProgramUse]]:
    """The programs that this thread asks for inside the block, which raise no alarm."""
    outer = getattr(_local, "uses", None)
    uses: list[ProgramUse] = []
    _local.uses = uses
    try:
        yield uses
    finally:
        _local.uses = outer
        if outer is not None:
            outer += uses


def note_present(op: str, call: str, identity: Hashable) -> None:
    """Notes that a call found its program in this process."""
    uses = getattr(_local, "uses", None)
    if uses is not None:
        uses.append(ProgramUse(op, call, identity, PRESENT, 0.0))


@contextlib.contextmanager
def noting(
    op: str, call: str, identity: Hashable, build: Callable[[], Any]
) -> Iterator[Callable[[], Any]]:
    """Around what loads or builds a program: gives ``build``, whose call is noticed.

    A block that raises is not noted: its call fails, and says so itself.
    """
    built = []
    start = time.perf_counter()

    def noticed() -> Any:
        program = build()
        built.append(program)
        return program

    yield noticed
    seconds = time.perf_counter() - start
    _note(ProgramUse(op, call, identity, BUILT if built else LOADED, seconds))


def _note(use: ProgramUse) -> None:
    global _late
    uses = getattr(_local, "uses", None)
    if uses is not None:
        uses.append(use)
        return
    with _lock:
        if not _done:
            return
        _late += 1
    _log.warning(
        "%s: a kernel was %s in %.2f s after warm-up, for %s; warm it up before serving, with "
        "op.warm_up(...)",
        use.op,
        use.origin,
        use.seconds,
        use.call,
    )
