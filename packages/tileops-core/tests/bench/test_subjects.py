"""Everybody's result is checked, and everybody takes turns."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core.bench import subjects
from tileops.core.bench.baselines import Baseline, baselines_of, by_cudnn
from tileops.core.bench.rows import make_case, measure
from tileops.core.bench.subjects import Subject, local_subjects, peer_subject
from tileops.core.bench.timers import CpuTimer
from tileops.core.errors import BenchError

CPU = torch.device("cpu")


class Peer:
    """A peer without a process."""

    name, version, missing = "fake", "1", ""

    def __init__(self, off: float, fault: str = "") -> None:
        self.off, self.fault = off, fault

    def prepare(self, op: str, params: Any, arguments: Any, device: Any) -> Any:
        if self.fault:
            raise BenchError(self.fault)
        return [arguments["x"] * params["factor"] + self.off], arguments

    def sampler(self, measure: str, sets: int) -> Any:
        return lambda: 1.0


def subject_of(ops: ModuleType, peer: Any) -> Subject:
    cls = ops.BenchScaleFwdOp
    case = make_case(cls, cls.entry.workloads[0], CPU, 0)
    return peer_subject(peer, case, CpuTimer(1e-4))


def test_a_wrong_peer_is_refused_and_a_broken_one_has_failed(ops: ModuleType) -> None:
    right, wrong = subject_of(ops, Peer(0.0)), subject_of(ops, Peer(1.0))
    broken = subject_of(ops, Peer(0.0, "it ended"))
    assert (right.status, list(right.samplers)) == ("timed", ["call"])
    assert (wrong.status, wrong.samplers) == ("refused", {})
    assert wrong.problem.startswith("y against the reference: 32 of 32 values are wrong")
    assert (broken.status, broken.problem) == ("failed", "it ended")


def test_a_baseline_of_other_devices_is_missing(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was called")

    cls = ops.BenchScaleFwdOp
    held = [*baselines_of(cls), Baseline(cls, never, "cudnn", devices=("cuda",))]
    monkeypatch.setattr(subjects, "baselines_of", lambda op: held)
    case = make_case(cls, cls.entry.workloads[0], CPU, 0)
    found = local_subjects(case, CpuTimer(1e-4), backend="eager")
    assert (found[-1].name, found[-1].status) == ("cudnn", "missing")
    assert found[-1].problem == "it runs on cuda only"


def test_by_cudnn_lets_nobody_else_serve_attention() -> None:
    """cuDNN cannot on a CPU: PyTorch's other ways would, if they were asked."""
    q = torch.randn(1, 2, 8, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    assert attend(q, q, q).shape == q.shape
    with pytest.raises(RuntimeError, match=r"No (available kernel|viable backend)"):
        by_cudnn(attend)(q, q, q)


def test_a_baseline_that_raises_is_a_line_of_the_report(
    ops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> Any:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(torch, "mul", refuses)
    cls = ops.BenchScaleFwdOp
    case = make_case(cls, cls.entry.workloads[0], CPU, 0)
    found = {one.name: one for one in local_subjects(case, CpuTimer(1e-4), backend="eager")}
    assert (found["tileops"].status, found["torch"].status) == ("timed", "failed")
    assert found["torch"].problem == "RuntimeError: no such operator"


def test_each_round_begins_with_another_and_who_fails_is_out() -> None:
    order: list[str] = []

    def taking(name: str, fails_at: int = 99) -> Subject:
        def sample() -> float:
            order.append(name)
            if order.count(name) == fails_at:
                raise BenchError("it ended")
            return 1.0

        return Subject(name, samplers={"call": sample})

    subjects = [taking("a"), taking("b", fails_at=2), taking("c")]
    found = measure(subjects, 3)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a"]
    assert found == {"a": {"call": [1.0] * 3}, "b": {}, "c": {"call": [1.0] * 3}}
    assert (subjects[1].status, subjects[1].problem) == ("failed", "BenchError: it ended")
