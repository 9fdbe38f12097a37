"""Rows that share what is read of the weight, on a GPU: in every kind of layout, exact."""

from __future__ import annotations

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
from tileops.norm.rows import programs
from tileops.norm.rows.configs import ITEMSIZE, Build, RowConfig

from .formulas import check, layer_norm, rms_norm
from .test_row_kernels import DTYPES, EPS, a_call, given_to, row_op

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPS = (RMSNormFwdOp, LayerNormFwdOp, FusedAddRMSNormFwdOp, FusedAddLayerNormFwdOp)
#: Bytes of an access, a width, and a layout; its ``vector`` is what the dtype makes of the bytes.
LAYOUTS: dict[str, tuple[int, int, RowConfig]] = {
    "full, early": (16, 4096, RowConfig(512, 1, 0, True, rows_per_thread=2)),
    "full, late": (16, 4096, RowConfig(256, 1, 0, False, rows_per_thread=4)),
    "eight rows": (16, 2048, RowConfig(512, 1, 0, True, rows_per_thread=8)),
    "ends within": (16, 1000, RowConfig(96, 2, 0, True, rows_per_thread=4)),
    "many warps": (16, 4544, RowConfig(576, 1, 0, False, rows_per_thread=4)),
    "part of a warp": (16, 120, RowConfig(8, 16, 0, True, rows_per_thread=4)),
    "a warp": (16, 1000, RowConfig(32, 4, 0, False, rows_per_thread=2)),
    "more rows than lanes": (16, 24, RowConfig(2, 32, 0, True, rows_per_thread=4)),
    "single elements": (0, 261, RowConfig(32, 4, 0, False, rows_per_thread=2)),
}
#: Less than one thread's rows, a last thread that has fewer, a last block that has.
COUNTS = (1, 2, 5, 64, 131)


def layout(name: str, dtype: torch.dtype) -> tuple[int, RowConfig]:
    size, n, config = LAYOUTS[name]
    vector = max(size // ITEMSIZE[str(dtype).removeprefix("torch.")], 1)
    if dtype == torch.float32 and size:
        n = n // 2 + n % 2  # as many accesses
    return n, RowConfig(**{**vars(config), "vector": vector})


@functools.cache
def program(op: Any, build: Build) -> Any:
    return tilelang_backend.build(
        lambda: programs.program(op, build),
        arch=tilelang_backend.device_arch(),
        pass_configs=programs.PASS_CONFIGS,
    )


def run(op: Any, call: Any, config: RowConfig, given: dict[str, Any]) -> dict[str, Any]:
    """Outputs, NaN before, of a row more than there is, which stays NaN."""
    known, m = row_op(op), given["x"].shape[0]
    kinds: dict[str, Any] = {
        name: str(given[name].dtype).removeprefix("torch.")
        for name in ("weight", "bias")
        if given.get(name) is not None
    }
    offset = call.weight_offset != 0.0
    dtype = str(call.dtype).removeprefix("torch.")
    build = Build(call.n, dtype, config, offset=offset, **kinds)
    out = {
        name: torch.full((m + 1, call.n), math.nan, device="cuda").to(call.dtype)
        for name in known.outputs
    }
    tensors = {**given, **out}
    numbers = {"m": m, "eps": EPS, "offset": call.weight_offset}
    words = programs.parameters(known, build)
    places = {name: str(place) for place, name in enumerate(tensors)}
    wanted = [word if word in numbers else places[word] for word in words]
    used = {word: value for word, value in numbers.items() if word in words}
    launch = tilelang_backend.launcher(
        program(known, build).launch, torch.cuda.current_device(), wanted, used
    )
    launch(*tensors.values())
    torch.cuda.synchronize()
    for name, tensor in out.items():
        assert bool(tensor[m].isnan().all()), f"{name} was written past its end"
    return {name: tensor[:m] for name, tensor in out.items()}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
def test_rows_that_share_columns_match_float64(op: Any, name: str) -> None:
    """With weights of the dtype, in float32, with an offset, and none, by turns."""
    turn = OPS.index(op) + list(LAYOUTS).index(name)
    dtype = DTYPES[turn % 3]
    n, config = layout(name, dtype)
    call = a_call(op, n, dtype, turn)
    for m in COUNTS:
        given = given_to(op, call, m, 1, 20.0 if m == 5 else 0.0)
        before = {k: None if v is None else v.clone() for k, v in given.items()}
        out = run(op, call, config, given)
        for k, was in before.items():
            assert was is None or torch.equal(given[k], was), f"{k} was written"
        v = given["x"]
        if row_op(op).added:
            v = out["residual_out"]
            assert torch.equal(v, given["x"] + given["residual"])
        if row_op(op).statistics == "layer":
            expected = layer_norm(v, 1, EPS, given["weight"], given["bias"])
        else:
            expected = rms_norm(v, 1, EPS, given["weight"], call.weight_offset)
        check(out["y"], expected, dtype)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("op", [RMSNormFwdOp, LayerNormFwdOp], ids=lambda op: op.__name__)
def test_a_row_has_the_same_bits_wherever_it_is(op: Any, name: str) -> None:
    """At another place of its block, beside other rows, and beside rows of NaN and infinity."""
    n, config = layout(name, torch.float32)
    call = a_call(op, n, torch.float32, 0)
    given = given_to(op, call, 131, 1, 3.0)
    clean = run(op, call, config, given)["y"]
    for shift in (1, 2, 3, 5, 8):
        moved = {**given, "x": given["x"].roll(shift, 0)}
        assert torch.equal(run(op, call, config, moved)["y"], clean.roll(shift, 0))
    for special in (math.nan, math.inf, -math.inf):
        poisoned = torch.zeros(131, dtype=torch.bool, device="cuda")
        poisoned[[0, 3, 8, 64, 130]] = True
        x = given["x"].clone()
        x[poisoned, n // 3] = special
        found = run(op, call, config, {**given, "x": x})["y"]
        assert torch.equal(found[~poisoned], clean[~poisoned])
        # Of RMSNorm a row of an infinity is zeros beside one NaN.
        assert bool(found[poisoned].isnan().any(-1).all())
        if op is LayerNormFwdOp or math.isnan(special):
            assert bool(found[poisoned].isnan().all())


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_large_mean_costs_no_digits(name: str) -> None:
    """float32 rows of mean 10000 and spread 1: as exact as those of mean 0."""
    n, config = layout(name, torch.float32)
    call = a_call(LayerNormFwdOp, n, torch.float32, 0)
    given = given_to(LayerNormFwdOp, call, 21, 1, 10000.0)
    out = run(LayerNormFwdOp, call, config, given)["y"].double()
    v = given["x"].double()
    z = (v - v.mean(-1, keepdim=True)) / (v.var(-1, correction=0, keepdim=True) + EPS).sqrt()
    terms = z * given["weight"].double()
    # 40 roundings; none is of the mean's size.
    allowed = 40 * 2.0**-24 * (terms.abs() + given["weight"].abs() + given["bias"].abs())
    assert bool(((out - terms - given["bias"].double()).abs() <= allowed).all())
