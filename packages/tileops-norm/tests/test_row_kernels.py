"""The row ops' kernels on a GPU, each in every way to hold a row, against float64."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.core.kernels import Kernel
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
from tileops.norm.rows import choices
from tileops.norm.rows.call import LayerNormCall

from .formulas import Bounded, check, layer_norm, rms_norm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPS = (
    *(RMSNormFwdOp, LayerNormFwdOp, FusedAddRMSNormFwdOp, FusedAddLayerNormFwdOp),
    *(AdaLayerNormFwdOp, AdaLayerNormZeroFwdOp, RMSNormPerTokenQuantFwdOp),
    FusedAddRMSNormPerTokenQuantFwdOp,
)
QUANTIZED = (RMSNormPerTokenQuantFwdOp, FusedAddRMSNormPerTokenQuantFwdOp)
#: What a row starts at, and where one ends: single elements, phases of all kinds, clusters.
WIDTHS = [1, 3, 127, 513, 1000, 4096, 4097, 8190, 16384, 32767, 65536, 100003, 262144]
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
EPS = 1e-5


@functools.cache
def program(kernel: type[Kernel], call: LayerNormCall) -> Any:
    return kernel.entry_for(call)[1]()


def tensor(shape: tuple[int, ...], dtype: torch.dtype, aligned: bool, mean: float = 0.0) -> Any:
    """A contiguous tensor of normal numbers whose start is, or is not, 16-byte aligned."""
    size = math.prod(shape)
    flat = torch.empty(size + 1, device="cuda", dtype=dtype).normal_(mean)
    return (flat[:-1] if aligned else flat[1:]).view(shape)


def given_to(op: Any, call: LayerNormCall, rows: int, share: int, mean: float) -> dict[str, Any]:
    """Fresh inputs of ``op``, by name; None where the call has none."""
    found: dict[str, Any] = {}
    for name in row_op(op).inputs:
        shape, dtype = (rows, call.n), call.dtype
        if name in ("weight", "bias"):
            shape = (call.n,)
            dtype = call.weight_dtype if name == "weight" else call.bias_dtype
        elif name in ("gate", "scale", "shift"):
            # Each may have its own number of rows that share one of its own.
            shape = (rows // (1 if name == "shift" else share), call.n)
        centre = mean if name == "x" else 0.0
        found[name] = None if dtype is None else tensor(shape, dtype, call.aligned, centre)
    return found


def row_op(op: Any) -> Any:
    (interface,) = op.interfaces.values()
    return interface.row_op


def run(
    op: Any,
    placing: choices.Placing,
    call: LayerNormCall,
    given: dict[str, Any],
    inplace: bool = False,
) -> dict[str, Any]:
    """What the kernel of ``placing`` makes of ``given``; outputs start as NaN, or as an input."""
    known = row_op(op)
    rows = given["x"].numel() // call.n
    out: dict[str, Any] = {}
    for name in known.outputs:
        shape, dtype = (rows, call.n), call.dtype
        if known.quantized and name == "y":
            dtype = torch.float8_e4m3fn
        elif known.quantized and name == "scale":
            shape, dtype = (rows, 1), torch.float32
        source = {"y": "x", "residual_out": "residual"}.get(name)
        if inplace and known.added and dtype == call.dtype and source:
            out[name] = given[source]
        else:
            out[name] = torch.full(shape, math.nan, device="cuda").to(dtype)
    name = known.name if placing == "registers" else f"{known.name}_{placing}"
    kernel = op.kernel_types[name]
    kernel(call, program(kernel, call))(*given.values(), *out.values())
    torch.cuda.synchronize()
    return out


def verify(
    op: Any,
    placing: choices.Placing,
    call: LayerNormCall,
    rows: int,
    *,
    share: int = 1,
    inplace: bool = False,
    mean: float = 0.0,
) -> None:
    """Launch once on fresh numbers, and compare every element with float64."""
    known = row_op(op)
    given = given_to(op, call, rows, share, mean)
    before = {k: None if v is None else v.clone() for k, v in given.items()}
    out = run(op, placing, call, given, inplace)
    for name, was in before.items():
        if was is not None and not (inplace and name in ("x", "residual")):
            assert torch.equal(given[name], was), f"{name} was written"
    given = before
    v = given["x"]
    if known.added:
        v = out["residual_out"] if not inplace else out["residual_out"].clone()
        check_sum(given, v, share)
    if known.modulated:
        scale = given["scale"].double().repeat_interleave(share, 0)
        expected = layer_norm(v, 1, EPS, scale + 1, given["shift"].double())
    elif known.statistics == "layer":
        expected = layer_norm(v, 1, EPS, given["weight"], given["bias"])
    else:
        expected = rms_norm(v, 1, EPS, given["weight"], call.weight_offset)
    if known.quantized:
        check_quantized(out, expected, call.scale_ub)
    else:
        check(out["y"], expected, call.dtype)


def check_sum(given: dict[str, Any], found: torch.Tensor, share: int) -> None:
    """The sum is the exact one, rounded: of a gated one the product may have been rounded too."""
    x, residual = given["x"], given["residual"]
    if "gate" not in given:
        assert torch.equal(found, x + residual)
        return
    product = x.double() * given["gate"].double().repeat_interleave(share, 0)
    exact = residual.double() + product
    allowed = (exact.abs() / 2 + 0) * torch.finfo(x.dtype).eps * (1 + 2**-10)
    allowed += (residual.double().abs() + product.abs()) * 2.0**-23
    allowed += torch.finfo(x.dtype).smallest_normal
    assert bool(((found.double() - exact).abs() <= allowed).all())


def check_quantized(out: dict[str, Any], expected: Bounded, bound: float | None) -> None:
    """The scale as float32 can give it; each value within half a float8 step of its quotient."""
    value, off = expected
    largest, slack = value.abs().amax(-1, keepdim=True), off.amax(-1, keepdim=True)
    covered = largest if bound is None else largest.clamp(max=bound)
    scale = covered.clamp(min=1 / 512) / 448
    assert bool(((out["scale"].double() - scale).abs() <= slack / 448 + scale * 2.0**-22).all())
    quotient = (value / scale).clamp(-448, 448)
    moved = off / scale + quotient.abs() * (slack / 448 / scale + 2.0**-22)
    # e4m3 has 3 bits of fraction: half a step is at most 2**-4 of the value, or half of 2**-9.
    allowed = (quotient.abs() + moved) / 16 + 2.0**-10 + moved
    assert bool(((out["y"].float().double() - quotient).abs() <= allowed).all())


def a_call(op: Any, n: int, dtype: torch.dtype, kind: int, aligned: bool = True) -> LayerNormCall:
    """One of the ways to call ``op``: with a weight of its own dtype, in float32, or with none."""
    known = row_op(op)
    weights = [dtype, torch.float32] if known.quantized else [dtype, torch.float32, None]
    weight = weights[kind % len(weights)] if "weight" in known.inputs else None
    bias = [dtype, torch.float32, dtype][kind % 3] if "bias" in known.inputs else None
    return LayerNormCall(
        torch.device("cuda", torch.cuda.current_device()),
        n,
        EPS,
        dtype,
        weight,
        aligned,
        bias,
        weight_offset=1.0 if weight is not None and known.statistics == "rms" and kind % 2 else 0.0,
        scale_ub=2.5 if known.quantized and kind % 2 else None,
    )


@pytest.mark.parametrize(
    ("op", "n"),
    # Half of the widths each: building them all would take many minutes.
    [(op, n) for i, op in enumerate(OPS) for n in WIDTHS[i % 2 :: 2]],
)
def test_what_is_selected_matches_float64(op: Any, n: int) -> None:
    """One row, a few, and many; the dtypes, weights and starts by turns."""
    turn = WIDTHS.index(n) + OPS.index(op)
    call = a_call(op, n, DTYPES[turn % 3], turn // 3, aligned=turn % 4 != 3)
    arch = tilelang_backend.device_arch()
    name = str(call.dtype).removeprefix("torch.")
    placing = choices.select(row_op(op), n, name, call.aligned, arch)
    share = 3 if row_op(op).modulated else 1
    verify(op, placing, call, 1)
    verify(op, placing, call, 6, share=share, inplace=True, mean=20.0)
    verify(op, placing, call, 510 if n <= 16384 else 60, share=share)


@pytest.mark.parametrize("placing", ["registers", "on_chip", "streaming"])
@pytest.mark.parametrize("n", [1000, 8201])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
def test_every_way_to_hold_a_row_is_right_where_another_is_selected(
    op: Any, n: int, placing: choices.Placing
) -> None:
    """A threshold may move; and elsewhere than here, rows are streamed that clusters hold here."""
    call = a_call(op, n, torch.bfloat16, n)
    verify(op, placing, call, 1, inplace=True)
    verify(op, placing, call, 66, share=3 if row_op(op).modulated else 1)


@pytest.mark.parametrize("n", [1024, 4096, 4544, 5001, 8192, 30000])
@pytest.mark.parametrize("op", [RMSNormFwdOp, LayerNormFwdOp, AdaLayerNormFwdOp, *QUANTIZED])
def test_many_rows_have_a_layout_of_their_own(op: Any, n: int) -> None:
    """The same program, on both sides of the numbers of rows from which another layout serves."""
    call = a_call(op, n, torch.bfloat16, 0)
    arch = tilelang_backend.device_arch()
    known = row_op(op)
    placing = choices.select(known, n, "bfloat16", True, arch)
    choice = choices.choose(placing, known, n, "bfloat16", True, arch)
    for rows in (choice.several_rows, choice.many_rows):
        for count in (rows - 1, rows, rows + 1) if rows else (1000,):
            verify(op, placing, call, count)


#: Of a quantized row's elements, by eps, beside rows of NaN and infinity: squares leave float32's
#: range at one end, products with weights of 1e25 and 1e-30 at both.
SIZES = {EPS: (1.0, 0.0, 1e15, 1e-18, 1e-30, 1e-39, 1.0), 0.0: (1.0, 0.0, 1e15, 1e-15, 1.0)}


@pytest.mark.parametrize("op", QUANTIZED, ids=lambda op: op.__name__)
@pytest.mark.parametrize(
    ("placing", "n", "dtype", "kind", "many"),
    [
        # In one warp, in one block, in one block each, in one of many rows, and in narrow accesses.
        ("registers", 100, torch.bfloat16, 0, False),
        ("registers", 1000, torch.bfloat16, 1, False),
        ("registers", 4096, torch.bfloat16, 1, False),
        ("registers", 4096, torch.bfloat16, 0, True),
        ("registers", 5000, torch.bfloat16, 1, True),
        ("registers", 4096, torch.float32, 1, True),
        ("registers", 4097, torch.bfloat16, 1, False),
        ("registers", 8190, torch.float32, 0, False),
        ("registers", 10002, torch.bfloat16, 3, False),
        # Held on chip, by one block and by a cluster, and not held.
        ("on_chip", 65536, torch.bfloat16, 1, False),
        ("on_chip", 262144, torch.bfloat16, 0, False),
        ("streaming", 40001, torch.bfloat16, 1, False),
    ],
)
def test_quantized_rows_of_any_magnitude(
    op: Any, placing: choices.Placing, n: int, dtype: torch.dtype, kind: int, many: bool
) -> None:
    """Weights so large or so small that a product with a row leaves float32's range, although the
    norm does not: such rows are as exact as their neighbours."""
    name = str(dtype).removeprefix("torch.")
    for eps, sizes in SIZES.items():
        call = dataclasses.replace(a_call(op, n, dtype, kind, kind != 3), eps=eps)
        arch = tilelang_backend.device_arch()
        rows = choices.choose(placing, row_op(op), n, name, call.aligned, arch).many_rows
        assert rows or not many
        count = max(rows if many else 0, 2 * len(sizes) + 4)
        size = torch.tensor([1.0, *sizes, 1.0], device="cuda", dtype=torch.float64)
        size = size.repeat(count // len(size) + 1)[:count, None]
        for every, third in ((1.0, 1.0), (1e25, 1e25), (1e-30, 1e-30), (1e-30, 1e25)):
            given = given_to(op, call, count, 1, 0.0)
            for rows_of in ("x", "residual"):
                if rows_of in given:
                    given[rows_of].copy_(given[rows_of].double() * size)
            factor = torch.full((n,), every, device="cuda", dtype=torch.float64)
            factor[::3] = third
            given["weight"].copy_(given["weight"].double() * factor)
            poisoned = torch.zeros(count, dtype=torch.bool, device="cuda")
            poisoned[[2, count - 2]] = True
            given["x"][2, n // 2] = math.nan
            given["x"][count - 2, n - 1] = math.inf
            if eps == 0.0:
                poisoned |= size[:, 0] == 0.0
            out = run(op, placing, call, given)
            v = out.get("residual_out", given["x"])
            if row_op(op).added:
                assert torch.equal(v[~poisoned], (given["x"] + given["residual"])[~poisoned])
            expected = rms_norm(v[~poisoned], 1, eps, given["weight"], call.weight_offset)
            found = {name: out[name][~poisoned] for name in ("y", "scale")}
            check_quantized(found, expected, call.scale_ub)
            assert bool(out["scale"][poisoned].isnan().all())
            assert bool(out["y"][poisoned].float().isnan().all())


@pytest.mark.parametrize("n", [4096, 4097, 131072])
def test_a_large_mean_costs_no_digits(n: int) -> None:
    """float32 rows of mean 10000 and spread 1: as exact as those of mean 0."""
    for op in (LayerNormFwdOp, FusedAddLayerNormFwdOp):
        call = a_call(op, n, torch.float32, 0)
        given = given_to(op, call, 5, 1, 10000.0)
        name = "float32"
        placing = choices.select(row_op(op), n, name, True, tilelang_backend.device_arch())
        out = run(op, placing, call, given)
        v = out.get("residual_out", given["x"]).double()
        z = (v - v.mean(-1, keepdim=True)) / (v.var(-1, correction=0, keepdim=True) + EPS).sqrt()
        terms = z * given["weight"].double()
        expected = terms + given["bias"].double()
        # 40 roundings; none is of the mean's size.
        allowed = 40 * 2.0**-24 * (terms.abs() + given["weight"].abs() + given["bias"].abs())
        assert bool(((out["y"].double() - expected).abs() <= allowed).all())


@pytest.mark.parametrize("n", [1000, 65537])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
def test_nan_and_infinity_spread_as_in_the_reference(op: Any, n: int) -> None:
    """A NaN or an infinity poisons its own row as PyTorch's operators do, and no other row."""
    call = a_call(op, n, torch.float16, 0)
    given = given_to(op, call, 4, 1, 0.0)
    given["x"][1, n // 2] = math.nan
    given["x"][2, n - 1] = -math.inf
    placing = choices.select(row_op(op), n, "float16", True, tilelang_backend.device_arch())
    out = run(op, placing, call, given)
    (interface,) = op.interfaces.values()
    cpu = [None if t is None else t.cpu() for t in given.values()]
    cpu = [t.view(1, 4, n) if t is not None and t.dim() == 2 else t for t in cpu]
    found = interface.reference(call, *cpu)
    found = found if isinstance(found, tuple) else (found,)
    expected = dict(zip(row_op(op).outputs, found, strict=True))
    for name, actual in out.items():
        reference = expected[name].reshape(actual.shape).float()
        actual = actual.cpu().float()
        assert torch.equal(actual.isnan(), reference.isnan()), name
        assert torch.equal(actual.isinf(), reference.isinf()), name
        assert not actual[::3].isnan().any(), name


@pytest.mark.parametrize("op", [RMSNormFwdOp, FusedAddLayerNormFwdOp], ids=lambda op: op.__name__)
@pytest.mark.parametrize("n", [4096, 4095])
def test_offsets_pass_two_to_the_31(op: Any, n: int) -> None:
    """More than 2**31 elements: the last rows are read and written where they are."""
    rows = 2**31 // n + 3
    call = a_call(op, n, torch.float16, 0)
    placing = choices.select(row_op(op), n, "float16", True, tilelang_backend.device_arch())
    given = given_to(op, call, rows, 1, 0.0)
    out = run(op, placing, call, given)
    for part in (slice(0, 4), slice(-4, None)):
        few = {k: v[part] if v is not None and v.dim() == 2 else v for k, v in given.items()}
        v = few["x"] + few["residual"] if "residual" in few else few["x"]
        norm = rms_norm if row_op(op).statistics == "rms" else layer_norm
        more = (few["weight"],) if norm is rms_norm else (few["weight"], few["bias"])
        check(out["y"][part], norm(v, 1, EPS, *more), torch.float16)
    assert not out["y"].isnan().any()


def test_launches_on_the_current_stream() -> None:
    """On a side stream the kernel reads what that stream wrote before it, not what was there."""
    call = a_call(RMSNormFwdOp, 4096, torch.float16, 2)
    x, fresh = (tensor((512, 4096), torch.float16, True) for _ in range(2))
    given = {"x": x, "weight": None}
    run(RMSNormFwdOp, "registers", call, given)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        x.copy_(fresh)
        out = run(RMSNormFwdOp, "registers", call, given)
    check(out["y"], rms_norm(fresh, 1, EPS), torch.float16)


def test_a_captured_launch_replays() -> None:
    """A launch during a capture becomes a node of the graph and reads new values at replay."""
    call = a_call(LayerNormFwdOp, 4096, torch.float16, 0)
    given = given_to(LayerNormFwdOp, call, 64, 1, 0.0)
    y = torch.full_like(given["x"], math.nan)
    kernel = LayerNormFwdOp.kernel_types["layer_norm"]
    launch = kernel(call, program(kernel, call)).prepare(*given.values(), y)
    launch(*given.values(), y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(*given.values(), y)
    given["x"].normal_()
    y.fill_(math.nan)
    graph.replay()
    check(y, layer_norm(given["x"], 1, EPS, given["weight"], given["bias"]), torch.float16)
