"""Targets from other packages: the entry-point group ``tileops.targets``.

Each entry point names a :class:`~tileops.core.targets.Target`, or a function that returns one. It
is loaded when a target is first looked for. One that fails is recorded with its reason: ``tileops
doctor`` shows it, and so does every error about a target that is not there; nothing else suffers.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from tileops.core.locks import ForkSafeLock

__all__ = ["PluginFailure", "failures_text", "load_plugins", "plugin_failures"]

GROUP = "tileops.targets"

_logger = logging.getLogger("tileops")
_lock = ForkSafeLock()
_loaded = False
_loading = False
_failures: list[PluginFailure] = []


@dataclasses.dataclass(frozen=True)
class PluginFailure:
    """A plugin that could not be loaded: its entry point, and why."""

    name: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"the target plugin {self.name!r} ({self.value}) failed to load: {self.reason}"


def load_plugins(register: Callable[[Any], None]) -> None:
    """Loads the plugins, once, and hands each target to ``register``."""
    global _loaded, _loading
    if _loaded:
        return
    with _lock:
        # Loading: a plugin looks for targets while it is imported.
        if _loaded or _loading:
            return
        _loading = True
        for point in entry_points(group=GROUP):
            try:
                found = point.load()
                # A class or a function makes the target; a target itself is not called.
                register(found() if callable(found) else found)
            except Exception as error:
                failure = PluginFailure(point.name, point.value, f"{type(error).__name__}: {error}")
                _failures.append(failure)
                _logger.warning("%s", failure)
        _loaded, _loading = True, False


def plugin_failures() -> tuple[PluginFailure, ...]:
    """The plugins that failed to load, in the order in which they were tried."""
    return tuple(_failures)


def failures_text() -> str:
    """What an error about a missing target says of plugins that failed; empty if none did."""
    return "".join(f"; {failure}" for failure in _failures)
