"""Timers. This file needs torch and nothing else, so that a peer's process can load it.

A timer offers measures, and makes a sampler of each: a function that gives the seconds of one call,
a fresh measurement each time.

=============== ==============================================================================
``call``        a whole call on the CPU
``device``      CUDA-graph replays between events; the inputs rotate through more than the L2
``device_hot``  the same with one set of inputs, which stays in L2 where it fits
``host``        what a call costs the CPU, launches being asynchronous
=============== ==============================================================================
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["CpuTimer", "CudaTimer", "Sampler", "bound", "copies", "timer_for"]

Sampler = Callable[[], float]
Calls = Sequence[Callable[[], Any]]

MAX_SETS = 1024


def timer_for(device: torch.device) -> CpuTimer | CudaTimer:
    """The timer of a device's kind."""
    return CudaTimer(device) if device.type == "cuda" else CpuTimer()


def copies(arguments: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """``count`` sets of the same arguments, each in memory of its own."""
    return [
        {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        for _ in range(count)
    ]


def bound(function: Callable[..., Any], sets: Sequence[dict[str, Any]]) -> Calls:
    """A call without arguments for each set."""

    def bind(given: dict[str, Any]) -> Callable[[], Any]:
        return lambda: function(**given)

    return [bind(given) for given in sets]


class CpuTimer:
    """Whole calls by the process's clock.

    Args:
        seconds: what one sample takes at least, unless one call takes longer.
        clock: gives seconds.
    """

    measures = ("call",)
    host = "call"

    def __init__(
        self, seconds: float = 0.05, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._seconds = seconds
        self._clock = clock

    def sets(self, nbytes: int) -> int:
        """How many sets of inputs to rotate through."""
        return 1

    def sampler(self, measure: str, calls: Calls) -> Sampler:
        """Warms up, finds how many calls fill a sample, and returns what takes one."""
        calls[0]()
        number = max(1, min(10_000, round(self._seconds / max(self._run(calls, 1), 1e-9))))
        return lambda: self._run(calls, number)

    def _run(self, calls: Calls, number: int) -> float:
        start = self._clock()
        for call in itertools.islice(itertools.cycle(calls), number):
            call()
        return (self._clock() - start) / number


class CudaTimer:
    """Device time by CUDA-graph replays, host time by the process's clock.

    Args:
        device: the card.
        seconds: what one sample of device time takes at least.
    """

    measures = ("device", "device_hot", "host")
    host = "host"

    def __init__(self, device: torch.device, seconds: float = 0.01) -> None:
        self._device = device
        self._seconds = seconds

    def sets(self, nbytes: int) -> int:
        """How many sets make up three times the L2, within a quarter of the free memory."""
        l2 = torch.cuda.get_device_properties(self._device).L2_cache_size
        free, _ = torch.cuda.mem_get_info(self._device)
        wanted = max(2, -(-3 * l2 // max(nbytes, 1)))
        return max(1, min(wanted, MAX_SETS, free // 4 // max(nbytes, 1)))

    def sampler(self, measure: str, calls: Calls) -> Sampler:
        """Warms up, captures the graph, and returns what takes a sample."""
        with torch.cuda.device(self._device):
            if measure == "host":
                return self._host(calls)
            # A graph of many calls, so that starting it does not count.
            chosen = [calls[0]] if measure == "device_hot" else list(calls)
            return self._graph(chosen * max(1, -(-20 // len(chosen))), len(chosen))

    def _host(self, calls: Calls) -> Sampler:
        for call in calls[:3]:
            call()

        def sample() -> float:
            torch.cuda.synchronize(self._device)
            # Few enough that the queue of launches never fills.
            chosen = list(itertools.islice(itertools.cycle(calls), 100))
            start = time.perf_counter()
            for call in chosen:
                call()
            elapsed = time.perf_counter() - start
            torch.cuda.synchronize(self._device)
            return elapsed / len(chosen)

        return sample

    def _graph(self, calls: Calls, keep: int) -> Sampler:
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for call in calls[:3]:
                call()
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        results: list[Any] = []
        with torch.cuda.graph(graph):
            for call in calls:
                # Kept, so that outputs lie apart as the inputs do and are not hot either.
                results.append(call())
                if len(results) > keep:
                    results.pop(0)

        def replay(times: int) -> float:
            with torch.cuda.device(self._device):  # events are of the current device
                before = torch.cuda.Event(enable_timing=True)
                after = torch.cuda.Event(enable_timing=True)
                before.record()
                for _ in range(times):
                    graph.replay()
                after.record()
                after.synchronize()
            elapsed: float = before.elapsed_time(after) / 1e3
            return elapsed / (times * len(calls))

        replay(1)
        once = replay(1) * len(calls)
        times = max(1, min(200, round(self._seconds / max(once, 1e-9))))
        return lambda: replay(times)
