"""Rows that clusters of blocks share, on a GPU: one by one and by twos, full and not, exact."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.norm import (
    FusedAddLayerNormFwdOp,
    FusedAddRMSNormFwdOp,
    LayerNormFwdOp,
    RMSNormFwdOp,
)
from tileops.norm.rows import choices, configs, ops, programs

from .formulas import check, layer_norm, rms_norm
from .test_row_kernels import EPS, a_call, given_to, row_op, run, verify

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

needs_clusters = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] not in (9, 10),
    reason="needs clusters",
)

#: Widths whose rows fill a cluster, of which many rows of LayerNorm share one by twos.
GROUPED = (131072, 196608, 262144)

HALVES = (torch.float16, torch.bfloat16)


@functools.cache
def grouped(n: int, dtype: str, rows: int, weight: str | None, bias: str | None) -> Any:
    """A program of ``rows`` rows of LayerNorm in each cluster, for any number of rows."""
    every = n // (512 * 8 * 8)
    config = configs.GroupConfig(512, 8, rows, every, (rows - 1) * every, every, 8)
    build = configs.Build(n, dtype, config, weight=weight, bias=bias)
    return build, tilelang_backend.build(
        lambda: programs.program(ops.LAYER_NORM, build),
        arch=tilelang_backend.device_arch(),
        pass_configs=programs.PASS_CONFIGS,
    )


@needs_clusters
@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_groups_of_rows_match_float64(rows: int, dtype: torch.dtype, kind: int) -> None:
    """A last group that has fewer rows, and calls of less than one group: what is past the last row
    is neither read nor written. With a weight of the dtype, in float32, and none; rows whose mean
    is large, which are looked at once more, among others."""
    n = 65536
    call = a_call(LayerNormFwdOp, n, dtype, kind)
    name, weight, bias = (
        None if t is None else str(t).removeprefix("torch.")
        for t in (dtype, call.weight_dtype, call.bias_dtype)
    )
    assert name is not None
    build, built = grouped(n, name, rows, weight, bias)
    words = list(programs.parameters(ops.LAYER_NORM, build))
    for m in (1, 2, 3, 133, 2049):
        given = given_to(LayerNormFwdOp, call, m, 1, 0.0)
        given["x"][m // 2 :: 5] += 20
        # A row more, which must stay as it is.
        y = torch.full((m + 1, n), math.nan, device="cuda").to(dtype)
        numbers = {"m": m, "eps": EPS}
        places = {"x": "0", "weight": "1", "bias": "2", "y": "3"}
        used = {word: value for word, value in numbers.items() if word in words}
        wanted = [word if word in used else places[word] for word in words]
        launch = tilelang_backend.launcher(built.launch, torch.cuda.current_device(), wanted, used)
        launch(*given.values(), y)
        torch.cuda.synchronize()
        expected = layer_norm(given["x"], 1, EPS, given["weight"], given["bias"])
        check(y[:m], expected, dtype)
        assert bool(y[m].isnan().all())


@needs_clusters
@pytest.mark.parametrize("special", [math.nan, math.inf, 30.0])
@pytest.mark.parametrize("n", GROUPED)
def test_a_rows_neighbours_in_its_group_are_as_without_it(n: int, special: float) -> None:
    """Rows of NaN, infinity or a large mean, at either place of a group: others get the same bits
    as before."""
    call = a_call(LayerNormFwdOp, n, torch.bfloat16, 0)
    arch = tilelang_backend.device_arch()
    choice = choices.choose("on_chip", ops.LAYER_NORM, n, "bfloat16", True, arch)
    assert isinstance(choice.many, configs.GroupConfig)
    rows = choice.many_rows + 1
    given = given_to(LayerNormFwdOp, call, rows, 1, 0.0)
    clean = run(LayerNormFwdOp, "on_chip", call, given)["y"]
    expected = layer_norm(given["x"], 1, EPS, given["weight"], given["bias"])
    check(clean, expected, torch.bfloat16)
    others = torch.zeros(rows, dtype=torch.bool, device="cuda")
    others[[0, 3, 8, rows - 1]] = True
    if special == 30.0:
        given["x"][others] += special
    else:
        given["x"][others, n // 3] = special
    found = run(LayerNormFwdOp, "on_chip", call, given)["y"]
    assert torch.equal(found[~others], clean[~others])
    if special == 30.0:
        expected = layer_norm(given["x"], 1, EPS, given["weight"], given["bias"])
        check(found, expected, torch.bfloat16)
    else:
        assert bool(found[others].isnan().all())


#: Each layout whose sums tensor cores find: a block that reads its rows again, that holds them,
#: clusters of 2, of 3 which rows do not fill, and of 7; rows with a residual in each of their ways.
SUMMED = [
    *(
        (LayerNormFwdOp, n)
        for n in (20480, 32768, 40960, 49152, 57352, 65536, 81928, 100000, 200000)
    ),
    *((RMSNormFwdOp, n) for n in (49160, 65536, 81920, 98304, 131072, 200000, 262144)),
    *(
        (FusedAddLayerNormFwdOp, n)
        for n in (12288, 16384, 16376, 20480, 32768, 49160, 131072, 196608)
    ),
    *((FusedAddLayerNormFwdOp, n) for n in (200000, 262144)),
    (FusedAddRMSNormFwdOp, 200000),
]


@needs_clusters
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("op", "n"), SUMMED)
def test_rows_that_tensor_cores_add_up_match_float64(op: Any, n: int, dtype: torch.dtype) -> None:
    """Few and many; means on either side of where a row is looked at once more, constant rows,
    some of one outlier, of NaN and of infinity; the weight in float32 by turns."""
    call = a_call(op, n, dtype, n // 8 % 2)
    known, name = row_op(op), str(dtype).removeprefix("torch.")
    arch = tilelang_backend.device_arch()
    placing = choices.select(known, n, name, True, arch)
    choice = choices.choose(placing, known, n, name, True, arch)
    assert any(config is not None and config.products for config in (choice.config, choice.many))
    for m in {13, (choice.many_rows or 13) + 13}:
        given = given_to(op, call, m, 1, 0.0)
        for row, mean in enumerate((0.5, 2.5, 2.8, 30.0, 1000.0)):
            given["x"][row] += mean
        given["x"][5] = 3.0
        given["x"][6, n // 7] = 900.0
        given["x"][7] *= 1e-3
        given["x"][8, n - 1] = math.nan
        given["x"][9, n - 1] = math.inf
        # What is added changes none of these.
        if known.added:
            given["residual"][:10] = 0.0
        x = given["x"].clone()
        summed = (x.float() + given["residual"].float()).to(dtype) if known.added else x
        found = run(op, placing, call, given, inplace=known.added)
        if known.added:
            assert torch.equal(found["residual_out"].nan_to_num(7.0), summed.nan_to_num(7.0))
        if known.statistics == "layer":
            expected = layer_norm(summed, 1, EPS, given["weight"], given["bias"])
        else:
            expected = rms_norm(summed, 1, EPS, given["weight"], call.weight_offset)
        check(found["y"], expected, dtype)


@needs_clusters
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(
    ("n", "dtype"),
    [
        (65536, torch.bfloat16),
        (49160, torch.bfloat16),
        (40960, torch.float16),
        (32768, torch.float32),
        (20004, torch.float32),
    ],
)
def test_rows_of_a_cluster_and_of_a_block_match_float64(
    n: int, dtype: torch.dtype, kind: int
) -> None:
    """Both are in one program, which chooses by the rows: below, at and above where it changes."""
    call = a_call(RMSNormFwdOp, n, dtype, kind)
    name, arch = str(dtype).removeprefix("torch."), tilelang_backend.device_arch()
    choice = choices.choose("on_chip", ops.RMS_NORM, n, name, True, arch)
    assert choice.many is not None
    assert choice.many.cluster == 1
    first = choice.several_rows or choice.many_rows
    for m in (1, first - 1, first, choice.many_rows, choice.many_rows + 133):
        given = given_to(RMSNormFwdOp, call, m, 1, 20.0)
        y = run(RMSNormFwdOp, "on_chip", call, given)["y"]
        expected = rms_norm(given["x"], 1, EPS, given["weight"], call.weight_offset)
        check(y, expected, dtype)


@needs_clusters
@pytest.mark.parametrize("n", GROUPED)
@pytest.mark.parametrize("op", [FusedAddRMSNormFwdOp, LayerNormFwdOp, FusedAddLayerNormFwdOp])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_wide_rows_in_clusters_match_float64(op: Any, n: int, dtype: torch.dtype) -> None:
    """Full clusters, which have no guards; rows that fill none have."""
    call = a_call(op, n, dtype, 0)
    verify(op, "on_chip", call, 1)
    verify(op, "on_chip", call, 7, inplace=True, mean=20.0)
    verify(op, "on_chip", dataclasses.replace(call, n=n - 1000), 7)


@pytest.mark.parametrize("n", [4096, 65536, 131072, 262144])
def test_rows_that_are_all_but_constant_keep_their_digits(n: int) -> None:
    """One element of float16 differs from the others by a step: the variance is far below what
    float32 rounds off the mean, and is right all the same. A rounded mean alone would
    be off by as much as y is."""
    call = dataclasses.replace(a_call(LayerNormFwdOp, n, torch.float16, 0), eps=1e-12)
    arch = tilelang_backend.device_arch()
    placing = choices.select(ops.LAYER_NORM, n, "float16", True, arch)
    rows = choices.choose(placing, ops.LAYER_NORM, n, "float16", True, arch).many_rows
    given = given_to(LayerNormFwdOp, call, max(rows, 5), 1, 0.0)
    given["x"].fill_(1001.0)
    given["x"][:, n // 5] = 1001.5
    out = run(LayerNormFwdOp, placing, call, given)["y"].double()
    x, weight, bias = (given[k].double() for k in ("x", "weight", "bias"))
    variance = x.var(-1, correction=0, keepdim=True)
    terms = (x - x.mean(-1, keepdim=True)) / (variance + 1e-12).sqrt() * weight
    expected = terms + bias
    # 40 roundings of float32, what those of the threads' sums may move, and half a step of y's.
    allowed = 40 * 2.0**-24 * (terms.abs() + bias.abs()) + 200 * 2.0**-24 * weight.abs()
    allowed = allowed * (1 + 2.0**-11) + expected.abs() * 2.0**-11 + 2.0**-25
    assert bool(((out - expected).abs() <= allowed).all())
