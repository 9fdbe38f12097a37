"""What one fresh process measures of a start: ``python probe.py REQUEST``, JSON in and out.

TileOPs is imported only inside what is timed, so that its import counts; torch before, so that
torch's does not. Requests have ``do`` and:

=========== ================================ ====================================================
``import``  ``module``                       seconds to import it over torch
``define``  ``module``                       seconds that the classes of ops took in that import
``call``    ``module``, ``op``, ``params``,  seconds to import, construct and call once
            ``inputs``, ``ints``, ``device``
``compile`` the same, ``who``, ``backend``   seconds of the first compiled call, ``who`` being the
                                             op or the ``torch`` that its family registers
``profile`` as ``call``                      seconds of one warm call, the only one that a
                                             profiler outside sees
=========== ================================ ====================================================
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def import_over_torch(request: dict[str, Any]) -> float:
    import torch  # noqa: F401

    start = time.perf_counter()
    importlib.import_module(request["module"])
    return time.perf_counter() - start


def define(request: dict[str, Any]) -> float:
    core: Any = importlib.import_module("tileops.core.op")
    plain, spent = core.attach, [0.0]

    def timed(*args: Any) -> None:
        start = time.perf_counter()
        plain(*args)
        spent[0] += time.perf_counter() - start

    core.attach = timed
    try:
        importlib.import_module(request["module"])
    finally:
        core.attach = plain
    return spent[0]


def _arguments(request: dict[str, Any]) -> dict[str, Any]:
    import torch

    made: dict[str, Any] = dict(request["ints"])
    for name, facts in request["inputs"].items():
        dtype = getattr(torch, facts["dtype"])
        if facts["values"] is not None:
            made[name] = torch.tensor(facts["values"]).reshape(facts["shape"]).to(dtype)
        else:
            made[name] = torch.randn(facts["shape"]).to(dtype)
        made[name] = made[name].to(request["device"])
    return made


def _finish(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def first_call(request: dict[str, Any]) -> float:
    import torch

    arguments = _arguments(request)
    _finish(request["device"])
    with torch.no_grad():
        start = time.perf_counter()
        cls = getattr(importlib.import_module(request["module"]), request["op"])
        cls(**request["params"])(**arguments)
        _finish(request["device"])
        return time.perf_counter() - start


def first_compiled(request: dict[str, Any]) -> float:
    import torch

    arguments = _arguments(request)
    cls = getattr(importlib.import_module(request["module"]), request["op"])
    op = cls(**request["params"])
    function: Callable[..., Any] = op
    if request["who"] == "torch":
        from tileops.core.bench.baselines import baselines_of
        from tileops.core.contract import load_contracts

        load_contracts()
        baseline = next(one for one in baselines_of(cls) if one.name == "torch")
        function = functools.partial(baseline.function, op)

    with torch.no_grad():
        start = time.perf_counter()
        compiled: Callable[..., Any] = torch.compile(
            function, fullgraph=True, dynamic=False, backend=request["backend"]
        )
        compiled(**arguments)
        _finish(request["device"])
        return time.perf_counter() - start


def profiled_call(request: dict[str, Any]) -> float:
    import torch

    arguments = _arguments(request)
    cls = getattr(importlib.import_module(request["module"]), request["op"])
    op = cls(**request["params"])
    cuda = request["device"].startswith("cuda")
    with torch.no_grad():
        for _ in range(3):
            op(**arguments)
        _finish(request["device"])
        if cuda:
            torch.cuda.profiler.start()
        start = time.perf_counter()
        op(**arguments)
        _finish(request["device"])
        elapsed = time.perf_counter() - start
        if cuda:
            torch.cuda.profiler.stop()
    return elapsed


WHAT = {
    "import": import_over_torch,
    "define": define,
    "call": first_call,
    "compile": first_compiled,
    "profile": profiled_call,
}

if __name__ == "__main__":
    # Not this folder: its modules are no top-level modules.
    sys.path.pop(0)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    wanted = json.loads(sys.argv[1])
    answers.write(json.dumps({"seconds": WHAT[wanted["do"]](wanted)}))
    answers.close()
