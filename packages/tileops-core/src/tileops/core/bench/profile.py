"""What bounds a workload: by Nsight Compute's counters, or by the PyTorch profiler's times."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from tileops.core.bench.limits import matrix_dtype, measure_ceilings
from tileops.core.bench.overhead import request_of
from tileops.core.bench.rows import make_case
from tileops.core.bench.timers import timer_for
from tileops.core.errors import BenchError
from tileops.core.op import Op
from tileops.manifest.calls import least_work
from tileops.manifest.model import Workload

__all__ = ["BUSY", "METRICS", "by_ncu", "by_torch", "parse_ncu"]

BUSY = 0.6
"""The part of a unit's peak from which it bounds a kernel, as Nsight Compute has it."""

CALLS = 10

METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm",
    "dram__bytes.sum": "bytes",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
    "launch__registers_per_thread": "registers",
}
_UNITS = {
    "": 1.0,
    "%": 1.0,
    "register/thread": 1.0,
    "s": 1.0,
    "second": 1.0,
    "ms": 1e-3,
    "msecond": 1e-3,
    "us": 1e-6,
    "usecond": 1e-6,
    "ns": 1e-9,
    "nsecond": 1e-9,
    "byte": 1.0,
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
}


def by_torch(cls: type[Op], workload: Workload, device: torch.device) -> Iterator[str]:
    """Lines: what ran and for how long, and how near the call comes to the measured ceilings.

    Raises:
        TileOpsError: the call cannot be made.
    """
    case = make_case(cls, workload, device, 0)
    timer = timer_for(device)
    cuda = device.type == "cuda"
    with torch.no_grad():
        for _ in range(3):
            case.op(**case.arguments)
        seconds = timer.sampler(timer.measures[0], [lambda: case.op(**case.arguments)])()
        host = timer.sampler(timer.host, [lambda: case.op(**case.arguments)])()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(CALLS):
                case.op(**case.arguments)
            if cuda:
                torch.cuda.synchronize(device)
    parts: list[tuple[float, str]] = []
    for event in profile.key_averages():
        spent = event.self_device_time_total if cuda else event.self_cpu_time_total
        if spent > 0:
            parts.append((spent / CALLS, event.key))
    yield f"{cls.__name__} {workload.label} by the PyTorch profiler, us of a call"
    for spent, name in sorted(parts, reverse=True)[:12]:
        yield f"  {spent:10.2f}  {name}"
    dtype = matrix_dtype(case.call)
    ceilings = measure_ceilings(timer, device, [dtype] if dtype else [])
    flops, nbytes = least_work(cls.entry, case.call)
    memory = nbytes / seconds / ceilings.bandwidth
    rate = ceilings.rates.get(dtype or "")
    matrix = flops / seconds / rate if rate else 0.0
    yield from _judgement(memory, matrix, seconds, host if cuda else 0.0)


def _judgement(memory: float, matrix: float, seconds: float, host: float) -> Iterator[str]:
    yield f"a call takes {seconds * 1e6:.2f} us" + (f", {host * 1e6:.2f} of the host" * bool(host))
    yield f"  least bytes: {memory:.1%} of what a copy reaches"
    yield f"  flops:       {matrix:.1%} of what a matrix product reaches"
    if host > seconds:
        yield "bound by the host: it launches more slowly than the device works"
    elif max(memory, matrix) >= BUSY:
        yield f"bound by {'memory' if memory >= matrix else 'arithmetic'}"
    else:
        yield "bound by neither: more bytes than the least, latency, or work that is not counted"


def by_ncu(cls: type[Op], workload: Workload, device: torch.device) -> Iterator[str]:
    """Lines: each kernel of one warm call with its counters, and what bounds it.

    Raises:
        BenchError: there is no ``ncu``, it failed, or it saw no kernel.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise BenchError("ncu is not on the path: it comes with the CUDA toolkit")
    request = {**request_of(cls, workload, device), "do": "profile"}
    script = str(Path(__file__).with_name("probe.py"))
    command = [ncu, "--csv", "--page", "raw", "--profile-from-start", "off"]
    command += ["--clock-control", "none"]  # the card is measured as it is found
    command += ["--metrics", ",".join(METRICS), sys.executable, script]
    done = subprocess.run(
        [*command, json.dumps(request, default=list)], capture_output=True, text=True
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise BenchError(f"ncu failed with code {done.returncode}: {' '.join(said)}")
    kernels = parse_ncu(done.stdout.splitlines())
    if not kernels:
        raise BenchError(f"ncu saw no kernel in a call of {cls.__name__} on {device}")
    yield f"{cls.__name__} {workload.label} by Nsight Compute, clocks as found"
    for name, found in kernels:
        yield f"  {name}"
        yield (
            f"    {found['time'] * 1e6:.2f} us, {found['bytes'] / 1e6:.2f} MB of DRAM; DRAM "
            f"{found['dram']:.1f}%, L2 {found['l2']:.1f}%, SM {found['sm']:.1f}% of peak; "
            f"{found['occupancy']:.0f}% of warps active, {found['registers']:.0f} registers"
        )
        busiest = max(("dram", "l2", "sm"), key=lambda unit: found[unit])
        bound = {"dram": "DRAM", "l2": "L2", "sm": "the multiprocessors"}[busiest]
        low = found[busiest] < 100 * BUSY
        yield "    bound by latency: no unit is busy" if low else f"    bound by {bound}"


def parse_ncu(lines: Sequence[str]) -> list[tuple[str, dict[str, float]]]:
    """The kernels in ``ncu --csv --page raw``: a line of names, one of units, one a kernel.

    Raises:
        BenchError: a metric is missing, or in a unit that is not known.
    """
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    names, units, *rows = list(csv.reader(lines[start:]))
    found = []
    for row in rows:
        if len(row) != len(names):
            continue
        values = dict(zip(names, row, strict=True))
        kinds = dict(zip(names, units, strict=True))
        counters: dict[str, Any] = {}
        for metric, short in METRICS.items():
            if metric not in values or kinds[metric] not in _UNITS:
                unit = kinds.get(metric, "nothing")
                raise BenchError(f"ncu gave {metric} in {unit!r}, which is not understood")
            counters[short] = float(values[metric].replace(",", "")) * _UNITS[kinds[metric]]
        found.append((values["Kernel Name"], counters))
    return found
