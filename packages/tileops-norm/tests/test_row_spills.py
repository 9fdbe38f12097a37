"""What the rows' layouts compile to: registers that are too few cost time, and say nothing."""

from __future__ import annotations

import math
import pathlib
import shutil
from typing import Any

import pytest

from tileops.core import tilelang_backend
from tileops.norm import (
    AdaLayerNormFwdOp,
    AdaLayerNormZeroFwdOp,
    FusedAddLayerNormFwdOp,
    FusedAddRMSNormFwdOp,
    FusedAddRMSNormPerTokenQuantFwdOp,
    LayerNormFwdOp,
    RMSNormFwdOp,
    RMSNormPerTokenQuantFwdOp,
)
from tileops.norm.rows import choices, ops, programs
from tileops.norm.rows.configs import Build, GroupConfig

from .test_channel_even import compiled

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")

OPS: tuple[Any, ...] = (
    *(RMSNormFwdOp, LayerNormFwdOp, FusedAddRMSNormFwdOp, FusedAddLayerNormFwdOp),
    *(AdaLayerNormFwdOp, AdaLayerNormZeroFwdOp, RMSNormPerTokenQuantFwdOp),
    FusedAddRMSNormPerTokenQuantFwdOp,
)

#: Wide rows, which no entry has a workload of.
WIDE = [
    *((ops.RMS_NORM, n, "bfloat16") for n in (40960, 49160, 65536, 131072, 262144)),
    (ops.RMS_NORM, 65536, "float16"),
    (ops.RMS_NORM, 32768, "float32"),
    (ops.RMS_NORM, 131072, "float16"),
    (ops.RMS_NORM, 65536, "float32"),
    *((ops.LAYER_NORM, n, "bfloat16") for n in (24576, 49152, 65536, 131072, 262144, 100000)),
    (ops.LAYER_NORM, 65536, "float32"),
    *((ops.FUSED_ADD_RMS_NORM, n, "bfloat16") for n in (40960, 65536, 131072, 262144)),
    (ops.FUSED_ADD_RMS_NORM, 65536, "float32"),
    *(
        (ops.FUSED_ADD_LAYER_NORM, n, "bfloat16")
        for n in (16384, 32768, 40960, 65536, 131072, 262144)
    ),
]

#: Bytes that are spilled where fewer registers' worth of work was slower: splits.py.
KNOWN = {("layer_norm", 65536, "float32"): 8}


def build_of(op: Any, n: int, dtype: str, columns: str, **more: Any) -> Build:
    placing = choices.select(op, n, dtype)
    kinds = {name: columns for name in ("weight", "bias") if name in op.inputs}
    return Build(n, dtype, *choices.choose(placing, op, n, dtype), **kinds, **more)


def workloads() -> dict[tuple[Any, Build], str]:
    """Each program that the workloads of the entries need, with one that needs it."""
    found: dict[tuple[Any, Build], str] = {}
    for op in OPS:
        (interface,) = op.interfaces.values()
        for workload in op.entry.workloads:
            shape: Any = workload.params.get("normalized_shape", ())
            n: Any = math.prod(shape) if shape else workload.dims["N"]
            dtype = workload.dtypes["T"]
            build = build_of(
                interface.row_op,
                n,
                dtype,
                workload.dtypes.get("W", dtype),
                offset=workload.params.get("weight_offset", 0.0) != 0.0,
            )
            found.setdefault((interface.row_op, build), f"{op.__name__} {workload.label}")
    return found


WORKLOADS = workloads()


def kept_in_memory(op: Any, build: Build, folder: pathlib.Path) -> list[int]:
    program = tilelang_backend.build(
        lambda: programs.program(op, build), arch="sm_90a", pass_configs=programs.PASS_CONFIGS
    )
    return [spilled for spilled, _ in compiled(program.source, folder)]


@pytest.mark.parametrize(("op", "build"), WORKLOADS, ids=WORKLOADS.values())
def test_no_workload_spills(op: Any, build: Build, tmp_path: pathlib.Path) -> None:
    """For few rows, several and many. LayerNorm of 8192x1600 float32 spilled 120 bytes, and took
    twice the time of the layout of few rows."""
    kernels = 1 + (build.many is not None) + (build.several is not None)
    assert kept_in_memory(op, build, tmp_path) == [0] * kernels


@pytest.mark.parametrize(("op", "n", "dtype"), WIDE)
def test_wide_rows_spill_only_what_was_measured(
    op: Any, n: int, dtype: str, tmp_path: pathlib.Path
) -> None:
    found = kept_in_memory(op, build_of(op, n, dtype, dtype), tmp_path)
    assert max(found) <= KNOWN.get((op.name, n, dtype), 0)


@pytest.mark.parametrize("columns", ["float32", "float16"])
@pytest.mark.parametrize(
    ("op", "n"),
    [
        *((ops.LAYER_NORM, n) for n in (1024, 2048, 4096, 4544, 5120, 8192)),
        *((ops.RMS_NORM, n) for n in (2048, 4096, 5120)),
    ],
)
def test_rows_that_share_a_weight_spill_next_to_nothing(
    op: Any, n: int, columns: str, tmp_path: pathlib.Path
) -> None:
    """RMSNorm of 4 rows in 32 registers a thread has no room for an offset, nor for a weight of
    float32: three words of them."""
    several = choices.choose("registers", op, n, "float16").several
    assert several is not None
    build = Build(n, "float16", several, weight=columns, offset=op.statistics == "rms")
    allowed = 12 if op.statistics == "rms" and several.rows == 4 else 0
    assert max(kept_in_memory(op, build, tmp_path)) <= allowed


@pytest.mark.parametrize(("columns", "allowed"), [("bfloat16", 0), ("float32", 24)])
@pytest.mark.parametrize("n", [98304, 131072, 196608])
def test_groups_of_rows_spill_next_to_nothing(
    columns: str, allowed: int, n: int, tmp_path: pathlib.Path
) -> None:
    """Beside a weight and a bias of float32, six words of rows that are looked at once more."""
    many = choices.choose("on_chip", ops.LAYER_NORM, n, "bfloat16").many
    assert isinstance(many, GroupConfig)
    build = Build(n, "bfloat16", many, weight=columns, bias=columns)
    assert kept_in_memory(ops.LAYER_NORM, build, tmp_path)[0] <= allowed
