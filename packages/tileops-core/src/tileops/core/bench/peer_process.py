"""What runs in a peer's process: ``python peer_process.py ADAPTER``. Needs torch and the peer.

Requests come as JSON, one a line; each gets one line of JSON back. What libraries print goes to
stderr. Requests:

============ ================================================= ================================
``do``       takes                                             gives
============ ================================================= ================================
``hello``                                                      ``version``; ``missing``: why not
``prepare``  ``op``, ``params``, ``arguments``, ``results``    ``served``; or why not, ``reason``
             (files), ``device``
``sampler``  ``measure``, ``sets``                             (samples will be asked for)
``sample``   ``measure``                                       ``seconds`` of one call
``drop``                                                       (frees what was prepared)
============ ================================================= ================================

What a request raises comes back as ``error``, and the next one is served.

An adapter is a Python file with ``DISTRIBUTION``, whose version is reported; ``MODULE``, which is
imported to see that it is there; and ``make(op, params, arguments)``, which returns a function that
takes the arguments by name and gives the op's outputs in order, or None where it has no such op.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["serve"]


def load(path: Path) -> ModuleType:
    """The module in a file that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Peer:
    """An adapter, and what it has been asked to prepare."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._adapter: Any = None
        self._timers: Any = None
        self._function: Any = None
        self._arguments: dict[str, Any] = {}
        self._device: Any = None
        self._samplers: dict[str, Any] = {}

    def hello(self) -> dict[str, Any]:
        # Here, so that what a broken adapter raises is an answer too.
        self._adapter = load(self._path)
        try:
            importlib.import_module(self._adapter.MODULE)
            version = importlib.metadata.version(self._adapter.DISTRIBUTION)
        except ImportError as error:
            return {"missing": f"{type(error).__name__}: {error}"}
        required = getattr(self._adapter, "VERSION", version)
        if version != required:
            name = self._adapter.DISTRIBUTION
            return {"missing": f"{name} {required} is needed, and {version} is installed"}
        return {"version": version}

    def prepare(
        self, op: str, params: dict[str, Any], arguments: str, results: str, device: str
    ) -> dict[str, Any]:
        import torch

        self.drop()
        self._timers = load(Path(__file__).with_name("timers.py"))
        self._device = torch.device(device)
        self._arguments = {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value
            for name, value in torch.load(arguments).items()
        }
        function = self._adapter.make(op, params, self._arguments)
        if function is None:
            return {"served": False, "reason": f"it has no {op} for this call"}
        given = self._timers.copies(self._arguments, 1)[0]
        with torch.no_grad():
            found = function(**given)
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        torch.save({"results": found, "arguments": given}, results)
        self._function = function
        return {"served": True}

    def sampler(self, measure: str, sets: int) -> dict[str, Any]:
        import torch

        timer = self._timers.timer_for(self._device)
        calls = self._timers.bound(self._function, self._timers.copies(self._arguments, sets))
        with torch.no_grad():
            self._samplers[measure] = timer.sampler(measure, calls)
        return {}

    def sample(self, measure: str) -> dict[str, Any]:
        import torch

        with torch.no_grad():
            return {"seconds": self._samplers[measure]()}

    def drop(self) -> dict[str, Any]:
        self._function, self._arguments = None, {}
        self._samplers.clear()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return {}


def serve(path: Path) -> None:
    """Answers requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    peer = Peer(path)
    for line in sys.stdin:
        request = json.loads(line)
        handler = getattr(peer, request.pop("do"))
        try:
            answer = handler(**request)
        except Exception as error:
            # Whatever a library raises is an answer; the next workload may go well.
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    # Not this folder: its modules are no top-level modules.
    sys.path.pop(0)
    serve(Path(sys.argv[1]))
