"""Medians, spreads, ties; limits by bytes and by flops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core.bench.limits import Ceilings, Limit, limit_of, matrix_dtype, measure_ceilings
from tileops.core.bench.samples import median, noise_floor, spread, verdict
from tileops.core.bench.timers import CpuTimer
from tileops.manifest.calls import resolve


def test_the_spread_is_between_the_quartiles() -> None:
    samples = [1.0, 2.0, 3.0, 4.0, 100.0]
    assert median(samples) == 3.0
    assert spread(samples) == pytest.approx(2 / 3)
    assert spread([5.0]) == 0.0


def test_the_noise_floor_is_what_one_thing_differs_by_from_itself() -> None:
    assert noise_floor([2.0, 2.0, 2.0], [2.5, 2.5, 2.5]) == 0.25
    assert noise_floor([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]) == spread([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("ratio", "word"),
    [(1.04, "tie"), (1 / 1.04, "tie"), (1.06, "slower"), (1 / 1.06, "faster")],
)
def test_a_difference_within_the_noise_is_a_tie(ratio: float, word: str) -> None:
    assert verdict(ratio, 0.05) == word


def test_the_larger_least_time_is_the_limit() -> None:
    ceilings = Ceilings(100.0, {"float16": 1000.0})
    assert limit_of(500, 100, "float16", ceilings) == Limit(1.0, "memory")
    assert limit_of(5000, 100, "float16", ceilings) == Limit(5.0, "matrix")
    assert limit_of(5000, 100, "float64", ceilings) == Limit(1.0, "memory")
    assert limit_of(5000, 100, None, ceilings) == Limit(1.0, "memory")


def test_ceilings_are_the_best_of_what_was_timed() -> None:
    """Each sample is two seconds apart by this clock; the products are of 64 rows."""
    ticks = iter(range(10**6))
    timer = CpuTimer(1e-9, lambda: 2.0 * next(ticks))
    found = measure_ceilings(timer, torch.device("cpu"), ["float32"], size=2**18, rounds=2)
    assert found == Ceilings(2 * 2**18 / 2.0, {"float32": 2 * 64**3 / 2.0})


def test_the_faster_way_to_copy_is_the_ceiling() -> None:
    """``copy_`` may be the slower one: in a CUDA graph it is no kernel."""

    class Timer(CpuTimer):
        def sampler(self, measure: str, calls: Sequence[Callable[[], Any]]) -> Callable[[], float]:
            function: Any = calls[0].func  # type: ignore[attr-defined]
            return lambda: {"copy_": 3.0, "add": 2.0}[function.__name__]

    found = measure_ceilings(Timer(), torch.device("cpu"), [], size=2**18)
    assert found == Ceilings(2 * 2**18 / 2.0, {})


def test_the_matrix_rate_is_of_the_inputs_dtype(ops: ModuleType) -> None:
    entry = ops.BenchScaleFwdOp.entry
    assert matrix_dtype(resolve(entry, entry.workloads[0])) == "float32"
