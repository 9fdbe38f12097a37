"""What a fresh process of a contract run does: ``python -m tileops.core.contract.child REQUEST``.

========== ========================================================================================
``do``     does
========== ========================================================================================
``first``  compiles every case, then exports and saves each, with what its eager call gives
``second`` compiles every case again, then loads and runs what the first saved
``case``   makes every check of one case (``--isolate``)
========== ========================================================================================

``output`` is the file for what was found: a line of JSON before and one after each case, or the
report.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tileops.core.contract.check import brief
from tileops.core.contract.judge import require_equal
from tileops.core.contract.processes import CACHES, FIRST, ended_in_order
from tileops.core.contract.registry import cases
from tileops.core.contract.subject import Ran, Subject
from tileops.core.targets import using_target

__all__ = ["main"]


class _Program(torch.nn.Module):
    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, arguments: dict[str, Any]) -> Any:
        return self.op(**arguments)


def main(request: dict[str, Any]) -> int:
    from tileops.core.contract.installed import load_all

    load_all()
    if request["do"] == "case":
        from tileops.core.contract.isolated import check_one

        with ended_in_order():
            check_one(request)
        return 0
    _compile_something()
    folder = Path(request["folder"])
    named = {case.name: case for case in cases()}
    steps: dict[str, Callable[[Subject, Path], dict[str, Any]]] = {
        "compile": _compile,
        "export": _export if request["do"] == FIRST else _load,
    }
    with Path(request["output"]).open("w") as lines:
        # Every compile before the first export: keys count the instances that there were.
        for do, step in steps.items():
            for number, (name, device, target) in enumerate(request["cases"]):
                place = [name, device, target]
                record: dict[str, Any] = {"place": place, "do": do, "seconds": None, "problem": ""}
                print(json.dumps(record), file=lines, flush=True)
                start = time.perf_counter()
                try:
                    if name not in named:
                        raise LookupError(
                            f"no installed family registers the case {name} in a fresh process"
                        )
                    subject = Subject(named[name], torch.device(device), seed=request["seed"])
                    # The default, and not the constructor's: a program holds no target.
                    with using_target(target) if target else contextlib.nullcontext():
                        record |= step(subject, folder / f"{number}")
                except Exception as error:
                    record["problem"] = brief(error)
                record["seconds"] = record["seconds"] or time.perf_counter() - start
                print(json.dumps(record), file=lines, flush=True)
    return 0


def _compile_something() -> None:
    """Has the compilers imported, which is no part of what a case takes."""
    torch.compile(lambda x: x.view(-1), fullgraph=True)(torch.ones(2, 2))


def _compile(subject: Subject, _: Path) -> dict[str, Any]:
    from torch._dynamo.utils import counters

    op, arguments = subject.make(), subject.inputs()
    torch._dynamo.reset()
    counters.clear()
    start = time.perf_counter()
    subject.call(torch.compile(op, fullgraph=True), arguments)
    seconds = time.perf_counter() - start
    counts = {
        name: count
        for group in ("inductor", "aot_autograd")
        for name, count in counters[group].items()
        if name in {f"{cache}_{what}" for cache in CACHES for what in ("hit", "miss", "bypass")}
    }
    return {"key": op._key, "caches": counts, "seconds": seconds}


def _export(subject: Subject, path: Path) -> dict[str, Any]:
    eager = subject.eager
    with torch.no_grad():
        program = torch.export.export(_Program(subject.make()), (subject.inputs(),))
    torch.export.save(program, path.with_suffix(".pt2"))
    kept = {"results": eager.results, "given": eager.given, "inputs": subject.inputs()}
    torch.save(kept, path.with_suffix(".tensors"))
    return {}


def _load(subject: Subject, path: Path) -> dict[str, Any]:
    if not path.with_suffix(".tensors").exists():
        raise LookupError("the first process saved no program")
    kept = torch.load(path.with_suffix(".tensors"), weights_only=True)
    program = torch.export.load(path.with_suffix(".pt2")).module()
    ran = subject.call(lambda **arguments: program(arguments), kept["inputs"])
    require_equal(subject, ran, Ran(kept["results"], kept["given"], {}), "the eager call's")
    return {}


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
