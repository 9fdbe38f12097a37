"""The cost of a start is measured in fresh processes, of a call beside PyTorch's own."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core.bench import overhead
from tileops.core.bench.overhead import CACHES
from tileops.core.bench.subjects import Subject
from tileops.core.errors import BenchError

CPU = torch.device("cpu")


def work_of(cls: Any) -> list[Any]:
    return [(cls, workload) for workload in cls.entry.workloads]


def test_every_cost_is_there_and_the_layers_share_one_graph(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fresh processes are answered for here; the next test starts one."""
    asked: list[tuple[str, str, tuple[str, ...], int]] = []

    def fresh(request: dict[str, str], caches: dict[str, str], rounds: int) -> list[float]:
        empty = not any(Path(folder).exists() for folder in caches.values())
        for folder in caches.values():
            Path(folder).mkdir(exist_ok=True)
        asked.append((request["do"], request.get("who", ""), tuple(caches), rounds))
        return [1.0 if empty else 0.5] * rounds

    monkeypatch.setattr(overhead, "_fresh", fresh)
    said: list[str] = []
    found = overhead.overhead(
        work_of(ops.BenchScaleFwdOp) * 2, CPU, 5, said.append, backend="eager"
    )
    assert asked == [
        ("import", "", (), 3),
        ("define", "", (), 3),
        ("call", "", CACHES, 1),
        ("call", "", CACHES, 1),
        ("compile", "tileops", CACHES, 1),
        ("compile", "tileops", CACHES, 1),
        ("compile", "torch", CACHES, 1),
        ("compile", "torch", CACHES, 1),
    ]
    assert {item["problem"] for item in found} == {""}
    title = "BenchScaleFwdOp small"
    assert [(item["what"], len(item["samples"])) for item in found] == [
        ("benchtest: import over torch", 3),
        ("benchtest: definition of its ops", 3),
        (f"{title}: import and first call, empty caches", 1),
        (f"{title}: import and first call, second process", 1),
        (f"{title}: first compiled call, empty caches", 1),
        (f"{title}: first compiled call, second process", 1),
        (f"{title}: first compiled call of PyTorch's own, empty caches", 1),
        (f"{title}: first compiled call of PyTorch's own, second process", 1),
        (f"{title}: a call of the op, eager", 5),
        (f"{title}: a call of the op, compiled", 5),
        (f"{title}: a call of PyTorch's own, eager", 5),
        (f"{title}: a call of PyTorch's own, compiled", 5),
        (f"{title}: graphs of 32 layers that share the op", 1),
    ]
    assert [item["samples"][0] for item in found[2:4]] == [1.0, 0.5]
    assert found[-1]["samples"] == [1.0]


def test_an_interrupted_measurement_is_taken_up(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured stays; a second process without its first one's caches is none."""
    asked: list[str] = []

    def fresh(request: dict[str, str], caches: dict[str, str], rounds: int) -> list[float]:
        asked.append(request["do"])
        if len(asked) == 4:
            raise KeyboardInterrupt
        return [1.0] * rounds

    monkeypatch.setattr(overhead, "_fresh", fresh)
    found: list[overhead.Cost] = []
    sizes: list[int] = []
    arguments = (work_of(ops.BenchScaleFwdOp), CPU, 2, lambda line: None)
    with pytest.raises(KeyboardInterrupt):
        overhead.overhead(
            *arguments, backend="eager", found=found, save=lambda: sizes.append(len(found))
        )
    assert sizes == [1, 2, 3]
    overhead.overhead(*arguments, backend="eager", found=found)
    assert asked[4:] == ["call", "call", "compile", "compile", "compile", "compile"]
    names = [item["what"] for item in found]
    assert len(names) == len(set(names)) == 13
    overhead.overhead(*arguments, backend="eager", found=found)
    assert len(asked) == 10
    assert [item["what"] for item in found] == names


def test_only_the_chosen_workload_counts_and_inputs_that_need_values_get_none_at_random(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fresh(request: dict[str, str], caches: dict[str, str], rounds: int) -> list[float]:
        asked.append(request["do"])
        return [1.0] * rounds

    monkeypatch.setattr(overhead, "_fresh", fresh)
    _, anywhere = work_of(ops.BenchBumpFwdOp)
    said: list[str] = []
    found: list[overhead.Cost] = []
    for _ in range(2):
        overhead.overhead([anywhere], CPU, 2, said.append, backend="eager", found=found)
    assert asked == ["import", "define"]
    problem = (
        "BenchBumpFwdOp: the workload generates no values for row, which is int64, and random "
        "ones could point anywhere; name a generator for it in the entry"
    )
    assert [(item["what"], item["problem"]) for item in found[2:]] == [
        ("BenchBumpFwdOp anywhere", problem)
    ]
    assert said[2:] == [f"BenchBumpFwdOp anywhere: no costs: {problem}"]
    _, large = work_of(ops.BenchScaleFwdOp)
    found = overhead.overhead([large], CPU, 2, lambda line: None, backend="eager")
    assert found[-1]["what"].startswith("BenchScaleFwdOp large: graphs of ")
    with pytest.raises(BenchError, match="generates no values for row"):
        overhead.request_of(*anywhere, CPU)


def test_a_fresh_process_answers_or_says_why_not(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(Path(__file__).parent)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *([path] if path else [])]))
    cls = ops.BenchScaleFwdOp
    (_, request), *_ = overhead._starts(cls, cls.entry.workloads[0], CPU, "eager")
    (seconds,) = overhead._fresh(request, {}, 1)
    assert 0 < seconds < 60
    with pytest.raises(RuntimeError) as raised:
        overhead._fresh({"do": "nothing"}, {}, 1)
    assert str(raised.value) == "the process failed: KeyError: 'nothing'"


@pytest.mark.parametrize(("do", "who"), [("define", ""), ("compile", "torch")])
def test_what_a_process_does(ops: ModuleType, do: str, who: str) -> None:
    """In this one, where torch is imported already."""
    from tileops.core.bench.probe import WHAT

    cls = ops.BenchScaleFwdOp
    (_, request), *_ = overhead._starts(cls, cls.entry.workloads[0], CPU, "eager")
    assert WHAT[do]({**request, "who": who}) >= 0


def test_what_fails_to_compile_of_pytorchs_own_is_called_compiled_and_is_not_ours(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tileops.core.bench.command import Options, bench
    from tileops.core.choice import Choice

    def fresh(request: dict[str, str], caches: dict[str, str], rounds: int) -> list[float]:
        if request.get("who") == "torch":
            raise RuntimeError("the process failed: KeyError: 'buf1'")
        return [1.0] * rounds

    def local(*args: Any, **kwargs: Any) -> list[Subject]:
        ours = Subject("tileops", samplers={"call": lambda: 1.0})
        return [ours, Subject("inductor").fail("failed", "KeyError: 'buf1'")]

    monkeypatch.setattr(overhead, "_fresh", fresh)
    monkeypatch.setattr(overhead, "local_subjects", local)
    said: list[str] = []
    choice = Choice(ops=["BenchScaleFwdOp"], workloads=["small"])
    options = Options(choice, device="cpu", overhead=True, backend="eager")
    assert bench(options, said.append) == 0
    (line,) = [line for line in said if "a call of PyTorch's own" in line]
    assert line.split("a call of PyTorch's own, ")[1].startswith("compiled ")
    assert line.endswith("failed: KeyError: 'buf1'")
