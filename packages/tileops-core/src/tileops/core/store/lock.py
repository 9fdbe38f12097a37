"""A lock across processes, on a file that exists only while somebody holds or awaits it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

__all__ = ["PATIENCE", "locked"]

PATIENCE = 600.0
"""Seconds after which a waiter stops waiting: far above any build, so that it overtakes only a
holder that hangs, or a file system that lost an unlock."""

_held: set[int] = set()


def _close_in_child() -> None:
    # A forked child shares the parent's locks, and would keep them after the parent let them go.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def locked(path: str, patience: float | None = None) -> Iterator[None]:
    """Holds the lock ``path``, against other processes and other threads of this one.

    A process that dies lets go of its locks. ``patience`` is :data:`PATIENCE` unless given.

    Raises:
        TimeoutError: another holder kept it longer than ``patience``.
        OSError: the file cannot be made there, or the file system has no locks.
    """
    descriptor = _acquire(path, PATIENCE if patience is None else patience)
    owner = os.getpid()
    _held.add(descriptor)
    try:
        yield
    finally:
        # In a child that was forked meanwhile the descriptor is closed, and may be another file's.
        if os.getpid() == owner:
            _held.discard(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)


def _acquire(path: str, patience: float) -> int:
    deadline = time.monotonic() + patience
    pause = 0.001
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before may have removed the file between our opening and locking it: what
            # we locked then keeps nobody out.
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise TimeoutError(
                    f"the lock {path} has been held for {patience:g} s by another process"
                ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
