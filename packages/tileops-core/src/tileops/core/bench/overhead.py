"""What a start costs, and what a call costs on the host."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch

from tileops.core.bench.baselines import baselines_of
from tileops.core.bench.inputs import check_values, clone, make_arguments
from tileops.core.bench.rows import make_case, measure
from tileops.core.bench.subjects import INDUCTOR, Case, local_subjects
from tileops.core.bench.timers import timer_for
from tileops.core.errors import TileOpsError
from tileops.core.factory import place
from tileops.core.op import Op
from tileops.core.testing import GraphRecorder
from tileops.manifest.calls import least_work, resolve
from tileops.manifest.model import Workload

__all__ = ["CACHES", "LAYERS", "OTHERS", "overhead", "request_of"]

OTHERS = "PyTorch's own"
"""What the costs that are not of our ops have in their titles."""

LAYERS = 32
CACHES = (
    "TILEOPS_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TILELANG_CACHE_DIR",
)
"""Where the caches of all that compiles are: a cold start gives each an empty folder."""

Cost = dict[str, Any]


def overhead(
    work: Sequence[tuple[type[Op], Workload]],
    device: torch.device,
    rounds: int,
    say: Callable[[str], None],
    *,
    backend: str = "inductor",
    found: list[Cost] | None = None,
    save: Callable[[], None] = lambda: None,
) -> list[Cost]:
    """The costs of the ops' families and, on the smallest that ``work`` has of an op, of the op.

    Imports are measured in up to three fresh processes; a first call in one with empty caches and
    one with what that left. What fails has the reason and no samples.

    ``found`` is what an interrupted run measured: it is not measured again, and grows by the rest.
    ``save`` is called whenever it has grown.
    """
    found = [] if found is None else found
    there = {item["what"] for item in found}

    def add(what: str, unit: str, samples: Callable[[], list[float]]) -> None:
        if what in there:
            return
        say(what)
        try:
            found.append({"what": what, "unit": unit, "samples": samples(), "problem": ""})
        except Exception as error:
            problem = _problem(error)
            found.append({"what": what, "unit": unit, "samples": [], "problem": problem})
        save()

    some = min(rounds, 3)
    unique = list(dict.fromkeys(cls for cls, _ in work))
    for family, module in dict.fromkeys((cls.entry.family, _module(cls)) for cls in unique):
        for do, what in (("import", "import over torch"), ("define", "definition of its ops")):
            request = {"do": do, "module": module}
            add(f"{family}: {what}", "s", functools.partial(_fresh, request, {}, some))
    for cls in unique:
        workload = min(
            (workload for other, workload in work if other is cls),
            key=functools.partial(_bytes, cls),
        )
        title = f"{cls.entry.name} {workload.label}"
        if title in there:
            continue
        try:
            case = make_case(cls, workload, device, 0)
            starts = _starts(cls, workload, device, backend)
        except Exception as error:
            problem = _problem(error)
            say(f"{title}: no costs: {problem}")
            found.append({"what": title, "unit": "s", "samples": [], "problem": problem})
            save()
            continue
        for what, request in starts:
            pair = [f"{title}: {what}, {state}" for state in ("empty caches", "second process")]
            if there.issuperset(pair):
                continue
            # The second is nothing without the caches that the first one fills.
            there.difference_update(pair)
            found[:] = [item for item in found if item["what"] not in pair]
            with tempfile.TemporaryDirectory(prefix="tileops-bench-") as folder:
                caches = {name: str(Path(folder) / name.lower()) for name in CACHES}
                for one in pair:
                    add(one, "s", functools.partial(_fresh, request, caches, 1))
        if f"{title}: a call of the op, eager" not in there:
            say(f"{title}: host cost of a call")
            found += _host(title, case, rounds, backend)
            save()
        add(
            f"{title}: graphs of {LAYERS} layers that share the op",
            "1",
            functools.partial(_graphs, cls, workload, device),
        )
    return found


def _problem(error: Exception) -> str:
    return str(error) if isinstance(error, TileOpsError) else f"{type(error).__name__}: {error}"


def _module(cls: type[Op]) -> str:
    """What a user imports to have the op."""
    for point in entry_points(group="tileops.families"):
        if cls.__module__ == point.value or cls.__module__.startswith(f"{point.value}."):
            return point.value
    return cls.__module__


def _bytes(cls: type[Op], workload: Workload) -> int:
    return least_work(cls.entry, resolve(cls.entry, workload))[1]


def _starts(
    cls: type[Op], workload: Workload, device: torch.device, backend: str
) -> list[tuple[str, dict[str, Any]]]:
    request = request_of(cls, workload, device, backend)
    found = [
        ("import and first call", {**request, "do": "call"}),
        ("first compiled call", {**request, "do": "compile", "who": "tileops"}),
    ]
    if any(baseline.name == "torch" for baseline in baselines_of(cls)):
        theirs = {**request, "do": "compile", "who": "torch"}
        found.append(("first compiled call of PyTorch's own", theirs))
    return found


def request_of(
    cls: type[Op], workload: Workload, device: torch.device, backend: str = "inductor"
) -> dict[str, Any]:
    """What a fresh process is told of a workload's call; ``do`` is to be added.

    Raises:
        BenchError: an input's values matter, and the workload generates none.
    """
    call = place(cls.entry, resolve(cls.entry, workload), device)
    check_values(cls.__name__, call)
    return {
        "module": _module(cls),
        "op": cls.__name__,
        "params": dict(call.params),
        "inputs": {
            name: {
                "dtype": facts.dtype,
                "shape": facts.shape,
                "values": None if facts.values is None else list(facts.values),
            }
            for name, facts in call.inputs.items()
            if facts is not None
        },
        "ints": dict(call.ints),
        "device": str(device),
        "backend": backend,
    }


def _fresh(request: Mapping[str, Any], caches: Mapping[str, str], rounds: int) -> list[float]:
    """Seconds by a fresh process each time.

    Raises:
        RuntimeError: the process failed; the text has the end of what it printed.
    """
    command = [
        sys.executable,
        str(Path(__file__).with_name("probe.py")),
        json.dumps(request, default=list),
    ]
    found = []
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **caches})
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            # Advice may follow the line that names the error.
            named = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
            last = (named or lines or [f"code {done.returncode}"])[-1]
            raise RuntimeError(f"the process failed: {last}")
        found.append(float(json.loads(done.stdout)["seconds"]))
    return found


def _host(title: str, case: Case, rounds: int, backend: str) -> list[Cost]:
    """The op and PyTorch's own, eager and compiled, taking turns."""
    timer = timer_for(case.device)
    kept = (timer.host, f"{timer.host}_compiled")
    names = {"tileops": "the op", "torch": "PyTorch's own", "inductor": "PyTorch's own"}
    with torch.no_grad():
        subjects = [
            subject
            for subject in local_subjects(case, timer, backend=backend)
            if subject.name in names
        ]
        for subject in subjects:
            subject.samplers = {
                name: subject.samplers[name] for name in kept if name in subject.samplers
            }
        samples = measure(subjects, rounds)
    found = []
    for subject in subjects:
        measures = samples[subject.name] or {kept[subject.name == INDUCTOR]: []}
        for name, taken in measures.items():
            how = "compiled" if name.endswith("_compiled") else "eager"
            found.append(
                {
                    "what": f"{title}: a call of {names[subject.name]}, {how}",
                    "unit": "s",
                    "samples": taken,
                    "problem": subject.problem,
                }
            )
    return found


class _Layer(torch.nn.Module):
    """A layer that holds the op as layers should: the one that all of them share."""

    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op

    def forward(self, **arguments: Any) -> Any:
        return self.op(**arguments)


def _graphs(cls: type[Op], workload: Workload, device: torch.device) -> list[float]:
    """How many graphs layers take that are compiled each on its own."""
    call = place(cls.entry, resolve(cls.entry, workload), device)
    arguments = make_arguments(cls.__name__, call, device, 0)
    recorder = GraphRecorder("eager")
    torch._dynamo.reset()
    with torch.no_grad():
        for _ in range(LAYERS):
            layer = _Layer(cls.shared(**call.params))
            torch.compile(layer, backend=recorder, fullgraph=True)(**clone(arguments))
    return [float(len(recorder.graphs))]
