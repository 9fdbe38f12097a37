"""Programs of clusters, without a card: what they must do however they are launched."""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from typing import Any

import pytest

from tileops.core import tilelang_backend
from tileops.norm.channels.layouts import ColumnsLayout, EvenLayout, HeldLayout
from tileops.norm.channels.pieces import PASS_CONFIGS
from tileops.norm.channels.traits import Traits
from tileops.norm.rows import ops, programs
from tileops.norm.rows.configs import Build, RowConfig, WideConfig

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")

AVERAGED = ("float16", "float32", True, True, "float32", True, True)
TRACKED = Traits("instance", *AVERAGED[:5])

WAIT = "cudaGridDependencySynchronize();"
SIGNAL = "cudaTriggerProgrammaticLaunchCompletion();"


def channels(name: str, traits: Traits, layout: Any) -> list[str]:
    module = import_module(f"tileops.norm.channels.programs.{name}")
    return kernels_of(lambda: getattr(module, name)(traits, layout), PASS_CONFIGS)


def rows(config: Any, many: Any = None) -> list[str]:
    build = Build(16384, "bfloat16", config, many, weight="bfloat16")
    return kernels_of(lambda: programs.program(ops.RMS_NORM, build), programs.PASS_CONFIGS)


def kernels_of(make: Any, pass_configs: Any) -> list[str]:
    """The bodies of a program's kernels."""
    source = tilelang_backend.build(make, arch="sm_90a", pass_configs=pass_configs).source
    return re.split(r"__global__[^;{]*{", source)[1:]


HELD, EVEN = HeldLayout(4, 256, 1, 5, 8, False, False), EvenLayout(4, 256, 1, 5, 8)

CLUSTERS: dict[str, tuple[int, Any]] = {
    "held-and-its-average": (2, lambda: channels("held", TRACKED, HELD)),
    "held-and-its-counter": (2, lambda: channels("held", Traits("batch", *AVERAGED), HELD)),
    "even-and-its-average": (2, lambda: channels("even", TRACKED, EVEN)),
    "columns-and-its-counter": (
        2,
        lambda: channels("columns", Traits("batch", *AVERAGED), ColumnsLayout(4, 256, 8, 4)),
    ),
    "rows-in-registers": (1, lambda: rows(RowConfig(128, 1, 8, True, cluster=4))),
    "wide-rows": (1, lambda: rows(WideConfig(128, 8, 4, 4, 4, cluster=2))),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_wait_for_the_kernel_before(name: str) -> None:
    """The runtime of TileLang 0.1.15 lets whatever has clusters begin before the kernel before has
    ended, if that allows it, as launches that overlap do. x was read before it was written."""
    count, make = CLUSTERS[name]
    kernels = make()
    assert len(kernels) == count
    for kernel in kernels:
        assert kernel.count(WAIT) == 1
        # No block has looked for its part of anything yet.
        assert kernel.index(WAIT) < kernel.index("blockIdx")
        assert SIGNAL not in kernel


@pytest.mark.parametrize("cluster", [1, 4])
def test_launches_that_overlap_wait_and_then_signal(cluster: int) -> None:
    layout = EvenLayout(cluster, 256, 1, 2, 8, overlap=True)
    first, average = channels("even", TRACKED, layout)
    assert first.index(WAIT) < first.index(SIGNAL) < first.index("blockIdx")
    # Without clusters, what moves the running statistics is launched when the first kernel ends.
    assert (WAIT in average) == (cluster > 1)
    assert SIGNAL not in average


def test_what_overlaps_nothing_neither_waits_nor_signals() -> None:
    for kernel in channels("even", TRACKED, EvenLayout(1, 256, 1, 2, 8)):
        assert WAIT not in kernel
        assert SIGNAL not in kernel
