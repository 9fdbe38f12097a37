"""Targets from other packages: the entry-point group ``tileops.targets``.

Each entry point names a :class:`~tileops.core.targets.Target`, or a function that returns one. It
is loaded when a target is first looked for. One that fails is recorded with its reason: ``tileops
doctor`` shows it, and so does every error about a target that is not there; nothing else suffers.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tileops.core.locks import ForkSafeLock

__all__ = ["PluginFailure", "failures_text", "load_plugins", "plugin_failures"]

GROUP = "tileops.targets"

_logger = logging.getLogger("tileops")
_lock = ForkSafeLock()
_loaded = False
_loading = False
_tried: set[tuple[str, str]] = set()
_failures: list[PluginFailure] = []


def _stop_loading() -> None:
    # A child that was forked meanwhile does not have the thread that loads.
    global _loading
    _loading = False


os.register_at_fork(after_in_child=_stop_loading)


@dataclasses.dataclass(frozen=True)
class PluginFailure:
    """A plugin that could not be loaded: its entry point, and why."""

    name: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"the target plugin {self.name!r} ({self.value}) failed to load: {self.reason}"


def load_plugins(register: Callable[[Any], None]) -> None:
    """Loads the plugins, once, and hands each target to ``register``.

    After an interrupt the next who asks goes on with the plugin that was interrupted.
    """
    global _loaded, _loading
    if _loaded:
        return
    with _lock:
        # Loading: a plugin looks for targets while it is imported.
        if _loaded or _loading:
            return
        _loading = True
        try:
            for point in entry_points(group=GROUP):
                if (point.name, point.value) not in _tried:
                    _load(point, register)
                    _tried.add((point.name, point.value))
            _loaded = True
            _tried.clear()
        finally:
            _loading = False


def _load(point: EntryPoint, register: Callable[[Any], None]) -> None:
    try:
        found = point.load()
        # A class or a function makes the target; a target itself is not called.
        register(found() if callable(found) else found)
    # A module that calls sys.exit where it lacks something must not end whoever serves.
    except (Exception, SystemExit) as error:
        failure = PluginFailure(point.name, point.value, f"{type(error).__name__}: {error}")
        _failures.append(failure)
        _logger.warning("%s", failure)


def plugin_failures() -> tuple[PluginFailure, ...]:
    """The plugins that failed to load, in the order in which they were tried."""
    return tuple(_failures)


def failures_text() -> str:
    """What an error about a missing target says of plugins that failed; empty if none did."""
    return "".join(f"; {failure}" for failure in _failures)
