"""Locks that a forked child does not inherit locked.

A thread that holds a lock while another forks is not there in the child, and never lets go of it.
"""

from __future__ import annotations

import contextlib
import os
import threading

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """A reentrant lock that is free in a forked child."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._renew()
        # Not on Windows, where nothing forks.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        # In a child that was forked while its own thread held the lock, the new one is free.
        with contextlib.suppress(RuntimeError):
            self._lock.release()
