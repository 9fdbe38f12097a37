"""Timers count whole calls, with the set-up outside."""

from __future__ import annotations

import pytest
import torch

from tileops.core.bench.timers import CpuTimer, bound, copies, timer_for


class Clock:
    """A clock that moves only where a call says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> None:
        self.now += seconds


def test_a_sample_is_the_mean_of_enough_calls_and_the_first_does_not_count() -> None:
    clock, costs = Clock(), [100.0, 0.25, *[0.25] * 4, *[0.5] * 4]
    made: list[float] = []

    def call() -> None:
        made.append(costs[len(made)])
        clock.takes(made[-1])

    sample = CpuTimer(1.0, clock).sampler("call", [call])
    assert len(made) == 2  # to warm up, and to see how long it takes
    assert [sample(), sample()] == [0.25, 0.5]
    assert len(made) == 10


def test_sets_of_inputs_rotate_and_lie_apart() -> None:
    sets = copies({"x": torch.zeros(2), "n": 3}, 3)
    assert len({given["x"].data_ptr() for given in sets}) == 3
    seen: list[int] = []
    calls = bound(lambda x, n: seen.append(x.data_ptr()), sets)
    clock = Clock()
    timer = CpuTimer(1.0, lambda: clock.takes(0.125) or clock.now)
    timer.sampler("call", calls)()
    assert seen[2:8] == [given["x"].data_ptr() for given in sets] * 2


def test_the_timer_is_the_devices() -> None:
    assert timer_for(torch.device("cpu")).measures == ("call",)
    assert timer_for(torch.device("cuda", 0)).measures == ("device", "device_hot", "host")


@pytest.mark.gpu
def test_device_time_grows_with_the_work_and_hot_is_no_slower() -> None:
    device = torch.device("cuda", 0)
    timer = timer_for(device)

    def seconds(measure: str, rows: int) -> float:
        sets = copies({"x": torch.randn(rows, 4096, device=device)}, timer.sets(rows * 16384))
        sample = timer.sampler(measure, bound(torch.neg, [{"input": s["x"]} for s in sets]))
        return sorted(sample() for _ in range(5))[2]

    assert seconds("device", 65536) > 5 * seconds("device", 4096)
    assert seconds("device_hot", 512) < 1.1 * seconds("device", 512)
    assert seconds("host", 512) > 1e-7
