"""Programs of clusters, without a card: what they must do however they are launched."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from tileops.core import tilelang_backend
from tileops.norm.channels.layouts import (
    ColumnsLayout,
    ColumnsRunningLayout,
    ColumnsSplitLayout,
    EvenLayout,
    FlatLayout,
    HeldLayout,
    RelayLayout,
    SplitLayout,
)
from tileops.norm.channels.pieces import PASS_CONFIGS
from tileops.norm.channels.traits import Traits
from tileops.norm.rows import ops, programs
from tileops.norm.rows.configs import Build, GroupConfig, RowConfig, WideConfig

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")

AVERAGED = ("float16", "float32", True, True, "float32", True, True)
TRACKED, BATCH = Traits("instance", *AVERAGED[:5]), Traits("batch", *AVERAGED)
RUN = Traits("batch", *AVERAGED[:5])

WAIT = "cudaGridDependencySynchronize();"
SIGNAL = "cudaTriggerProgrammaticLaunchCompletion();"


def channels(name: str, traits: Traits, layout: Any) -> list[str]:
    module = import_module(f"tileops.norm.channels.programs.{name}")
    return kernels_of(lambda: getattr(module, name)(traits, layout), PASS_CONFIGS)


def rows(config: Any, many: Any = None) -> list[str]:
    build = Build(16384, "bfloat16", config, many, weight="bfloat16")
    return kernels_of(lambda: programs.program(ops.LAYER_NORM, build), programs.PASS_CONFIGS)


def kernels_of(make: Any, pass_configs: Any) -> list[str]:
    """The bodies of a program's kernels."""
    source = tilelang_backend.build(make, arch="sm_90a", pass_configs=pass_configs).source
    return re.split(r"__global__[^;{]*{", source)[1:]


HELD, EVEN = HeldLayout(4, 256, 1, 5, 8, False, False), EvenLayout(4, 256, 1, 5, 8)

CLUSTERS: dict[str, tuple[int, Any]] = {
    "held-and-its-average": (2, lambda: channels("held", TRACKED, HELD)),
    "held-and-its-counter": (2, lambda: channels("held", BATCH, HELD)),
    "even-and-its-average": (2, lambda: channels("even", TRACKED, EVEN)),
    "columns-and-its-counter": (
        2,
        lambda: channels("columns", BATCH, ColumnsLayout(4, 256, 8, 4)),
    ),
    "rows-in-registers": (1, lambda: rows(RowConfig(128, 1, 8, True, cluster=4))),
    "wide-rows": (1, lambda: rows(WideConfig(128, 8, 4, 4, 4, cluster=2))),
    "rows-by-products": (1, lambda: rows(WideConfig(128, 8, 8, 0, 1, cluster=2, products=True))),
    "groups-of-rows": (1, lambda: rows(GroupConfig(128, 8, 2, 4, 4, 4, 4))),
    "rows-and-groups-of-them": (
        2,
        lambda: rows(RowConfig(128, 1, 8, True, cluster=4), GroupConfig(128, 8, 2, 4, 4, 4, 4)),
    ),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_wait_for_the_kernel_before(name: str) -> None:
    """The runtime of TileLang 0.1.15 lets whatever has clusters begin before the kernel before has
    ended. x was read before all of it was written."""
    count, make = CLUSTERS[name]
    kernels = make()
    assert len(kernels) == count
    for kernel in kernels:
        assert kernel.count(WAIT) == 1
        # No block has looked for its part of anything yet.
        assert kernel.index(WAIT) < kernel.index("blockIdx")
        assert SIGNAL not in kernel


def test_where_only_some_kernels_have_clusters_the_compiler_is_told() -> None:
    """By the launch bounds of each: TileLang would give all of them the first one's clusters. They
    are launched as what has none is, and wait for nothing."""
    few, many = WideConfig(128, 8, 4, 4, 4, cluster=2), WideConfig(256, 8, 0, 0, 8)
    build = Build(16384, "bfloat16", few, many, 5, weight="bfloat16")
    program = tilelang_backend.build(
        lambda: programs.program(ops.RMS_NORM, build),
        arch="sm_90a",
        pass_configs=programs.PASS_CONFIGS,
    )
    assert "cluster_dims((threads) == 128 ? 2 : 1, 1, 1)" in program.source
    bounds = re.findall(r"__global__ void __launch_bounds__\((\d+), \d+\)", program.source)
    assert bounds == ["128", "256"]
    assert WAIT not in program.source


ALONE: dict[str, tuple[int, Any]] = {
    "held-and-its-average": (2, lambda: channels("held", TRACKED, replace(HELD, cluster=1))),
    "held-and-its-counter": (2, lambda: channels("held", BATCH, replace(HELD, cluster=1))),
    "even-and-its-average": (2, lambda: channels("even", TRACKED, replace(EVEN, cluster=1))),
    "columns-and-its-counter": (2, lambda: channels("columns", BATCH, ColumnsLayout(1, 256, 8, 4))),
    "relay": (2, lambda: channels("relay", BATCH, RelayLayout(256, 8, 4, 8))),
    "split": (2, lambda: channels("split", BATCH, SplitLayout(256, 8, 4, False, False))),
    "columns-split": (2, lambda: channels("columns_split", BATCH, ColumnsSplitLayout(256, 8, 4))),
    "flat": (1, lambda: channels("flat", RUN, FlatLayout(256, 8, 1, False))),
    "columns-running": (
        1,
        lambda: channels("columns_running", RUN, ColumnsRunningLayout(128, 8, 4)),
    ),
    "rows-in-registers": (1, lambda: rows(RowConfig(128, 1, 8, True))),
    "wide-rows": (1, lambda: rows(WideConfig(128, 8, 4, 4, 4))),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_has_no_clusters_neither_waits_nor_signals(name: str) -> None:
    """It is launched when the kernel before has ended, also on cards that have no such wait; and
    clusters behind it are launched when it has ended: see choose_layout."""
    count, make = ALONE[name]
    kernels = make()
    assert len(kernels) == count
    for kernel in kernels:
        assert WAIT not in kernel
        assert SIGNAL not in kernel
