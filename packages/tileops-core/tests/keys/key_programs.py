"""What the fresh processes of ``test_processes.py`` run: ``key_programs.py MODE FOLDER``.

Each prints one JSON object, on its last line.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

TEXT = 'it\'s "100%" \\ (a, #0)'
WARM = ("fxgraph_cache_hit", "fxgraph_cache_miss", "autograd_cache_hit", "autograd_cache_miss")


class Model(torch.nn.Module):
    def __init__(self, *ops: Any) -> None:
        super().__init__()
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for op in self.ops:
            x = op(x) + 1
        return x


def caches() -> dict[str, int]:
    found: dict[str, int] = {}
    for group in ("inductor", "aot_autograd"):
        found |= {name: counters[group][name] for name in WARM if name in counters[group]}
    return found


def compiled(model: Any, x: torch.Tensor) -> tuple[dict[str, int], float, bool]:
    """Compiles and runs ``model``; the caches' counters, the time, whether the result is right."""
    torch._dynamo.reset()
    counters.clear()
    start = time.perf_counter()
    y = torch.compile(model, fullgraph=True)(x)
    seconds = time.perf_counter() - start
    return caches(), seconds, torch.allclose(y, model(x))


def ops() -> list[Any]:
    from key_samples import PairFwdOp, ScaleFwdOp, TypedFwdOp

    return [
        ScaleFwdOp(4),
        ScaleFwdOp(4),
        ScaleFwdOp.shared(4),
        ScaleFwdOp((2, 3), factor=0.1),
        PairFwdOp(),
        TypedFwdOp(text=TEXT, ratio=float("inf"), kind="float32"),
    ]


X = torch.arange(12.0).reshape(3, 4)


def common() -> dict[str, Any]:
    """What the first process and a second equal one do alike."""
    made = ops()
    # Dynamo and inductor are imported here, and are no part of what is timed.
    compiled(lambda x: torch.sin(x) * 3, X)
    plain = compiled(lambda x: torch.nn.functional.rms_norm(x + 1, (4,)), X)
    # A graph of its own: the same function with another op would be found by its other key.
    op = compiled(Model(made[0], made[2]), X)
    return {"keys": [one._key for one in made], "plain": plain, "op": op}


def make(folder: Path) -> dict[str, Any]:
    from key_samples import NotedScaleOp, ScaleFwdOp, TypedFwdOp

    found = common()
    targeted = ScaleFwdOp(4, target="reference")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for strict in (False, True):
            program = torch.export.export(
                Model(targeted),
                (X,),
                strict=strict,
                dynamic_shapes=({0: torch.export.Dim("rows", min=2)},),
            )
            torch.export.save(program, folder / f"strict_{strict}.pt2")
    found["warnings"] = [str(one.message) for one in caught if "ScaleFwdOp" in str(one.message)]
    found["exported keys"] = [
        node.args[-1] for node in program.graph.nodes if "keys_scale_fwd" in str(node.target)
    ]
    model = Model(TypedFwdOp(text=TEXT))
    program = torch.export.export(model, (torch.arange(4.0),))
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "aoti.pt2"))
    noted = NotedScaleOp(4, note="seen", target="reference")
    shared = ScaleFwdOp.shared(4)
    (folder / "ops.pickle").write_bytes(pickle.dumps([shared, shared, noted]))
    torch.save(torch.nn.ModuleList([Model(shared), Model(noted)]), folder / "module.pt")
    return found


def use(folder: Path) -> dict[str, Any]:
    """A second process: nothing is imported yet that has the ops."""
    found: dict[str, Any] = {}
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(handler.format(record))  # type: ignore[method-assign]
    logging.getLogger("torch.export").addHandler(handler)
    for name, load in (
        ("export", lambda: torch.export.load(folder / "strict_False.pt2")),
        ("aoti", lambda: torch._inductor.aoti_load_package(str(folder / "aoti.pt2"))(X[0])),
    ):
        try:
            load()
        except RuntimeError as error:
            found[f"{name} without the family"] = f"{error}\n" + "\n".join(logged)

    from tileops.core import Target, load_families, register_target

    found["families"] = load_families()
    found |= common()

    from key_samples import NotedScaleOp, ScaleFwdOp

    # Live instances of what the programs hold, with a target that serves nobody.
    def refuse(*_: Any) -> Any:
        raise AssertionError

    register_target(Target("strange", lambda device: False, refuse))
    live = [ScaleFwdOp(4, target="strange") for _ in range(3)]
    for one in live:
        one.forward = refuse  # type: ignore[method-assign]
    for strict in (False, True):
        program = torch.export.load(folder / f"strict_{strict}.pt2")
        taller = torch.cat([X, X])
        found[f"strict={strict}"] = torch.equal(program.module()(taller), taller * 2 + 1)
        # What was exported compiles too.
        found[f"compiled {strict}"] = compiled(program.module(), X)[2]
    package = torch._inductor.aoti_load_package(str(folder / "aoti.pt2"))
    found["aoti"] = torch.equal(package(X[0]), X[0] + 1)
    shared, again, noted = pickle.loads((folder / "ops.pickle").read_bytes())
    found["shared"] = shared is again is ScaleFwdOp.shared(4)
    found["noted"] = [type(noted) is NotedScaleOp, noted.notes, noted._explicit_target]
    found["own key"] = noted._key.rpartition("#")[2]
    first, second = torch.load(folder / "module.pt", weights_only=False)
    found["module"] = first.ops[0] is shared and torch.equal(second(X), X * 2 + 1)
    return found


def version(number: int) -> dict[str, Any]:
    """One of two versions of two ops, over one folder of caches."""
    from key_samples import make_version

    widened, written = make_version(number)
    counters.clear()
    first, second = X.clone(), X.clone() + 1

    def call(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        written(a, b)
        return widened(x) + 1, a + 0, b + 0

    y, a, b = torch.compile(call, fullgraph=True)(X, first, second)
    expected = X.double() if number == 2 else X
    both = [X, X + 1]
    both[number - 1] = both[number - 1] * 10
    right = (
        y.dtype == expected.dtype
        and torch.equal(y, expected + 1)
        and torch.equal(a, both[0])
        and torch.equal(b, both[1])
        and torch.equal(first, both[0])
        and torch.equal(second, both[1])
    )
    return {"right": right, "caches": caches(), "keys": [widened._key, written._key]}


if __name__ == "__main__":
    mode, folder = sys.argv[1], Path(sys.argv[2])
    with torch.no_grad():
        result = {"make": make, "use": use}[mode](folder)
        result["version"] = version(1 if mode == "make" else 2)
    print(json.dumps(result))
