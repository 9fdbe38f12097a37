"""Where a benchmark runs: the card, its clocks, and the versions of all that takes part."""

from __future__ import annotations

import datetime
import platform
import subprocess
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

__all__ = ["clocks", "now", "surroundings"]

VERSIONS = ("torch", "triton", "tilelang", "apache-tvm-ffi", "nvidia-cudnn-cu13")
CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit", "pstate")


def now() -> str:
    """The date and time, UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def surroundings(device: torch.device) -> dict[str, Any]:
    """What must be the same where two runs are one: the machine's parts and the versions."""
    found = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name is not None and (name in VERSIONS or name.startswith("tileops-")):
            found[name] = distribution.version
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else _cpu(),
        "kind": device.type,
        "driver": (_smi("driver_version", device) or [""])[0] if cuda else "",
        "cuda": torch.version.cuda or "",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "versions": dict(sorted({**found, "torch": torch.__version__}.items())),
    }


def clocks(device: torch.device) -> dict[str, str]:
    """The card's clocks as they are found; nothing is set."""
    if device.type != "cuda":
        return {}
    return dict(zip(CLOCKS, _smi(",".join(CLOCKS), device), strict=False))


def _smi(query: str, device: torch.device) -> list[str]:
    """What ``nvidia-smi`` says, [] where it does not."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    identity = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", f"--id={identity}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [part.strip() for part in done.stdout.strip().split(",")]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
