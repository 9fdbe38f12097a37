"""Every argument wrong in every way: a typed error that says all, and the next good call works."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TorchRuntimeError, Unsupported

from tileops.core.errors import ArgumentError
from tileops.core.watch import set_dispatcher_bypass

LAYOUT = (
    "{a} has the layout {layout}, but the signature needs torch.strided; convert it, for example "
    "with {a}.to_dense()"
)
NESTED = (
    "{a} is a nested tensor, but the signature needs a plain one; pad it, for example with "
    "torch.nested.to_padded_tensor({a}, 0.0)"
)
BYTYPE = "{a} is of type {type}, but the signature needs a Tensor{or_none}"
DTYPE = "{a} has dtype {dtype}, but the signature needs {t}"


def numpy(tensor: torch.Tensor) -> Any:
    return pytest.importorskip("numpy").asarray(tensor.tolist(), dtype="float32")


def rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, 8)


WRONG: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "list": (lambda t: t.tolist(), BYTYPE.replace("{type}", "list")),
    "numpy": (numpy, BYTYPE.replace("{type}", "ndarray")),
    "number": (lambda t: 2.0, BYTYPE.replace("{type}", "float")),
    "tensor class": (lambda t: torch.Tensor, BYTYPE.replace("{type}", "_TensorMeta")),
    "half": (lambda t: t.half(), DTYPE.replace("{dtype}", "float16")),
    "int": (lambda t: t.long(), DTYPE.replace("{dtype}", "int64")),
    "bool": (lambda t: t > 0, DTYPE.replace("{dtype}", "bool")),
    "complex": (lambda t: t.to(torch.complex64), DTYPE.replace("{dtype}", "complex64")),
    "conjugated": (
        lambda t: t.to(torch.complex64).conj(),
        DTYPE.replace("{dtype}", "complex64"),
    ),
    "quantized": (
        lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
        DTYPE.replace("{dtype}", "qint8"),
    ),
    "sparse": (lambda t: t.to_sparse(), LAYOUT.replace("{layout}", "torch.sparse_coo")),
    "sparse rows": (
        lambda t: rows(t).to_sparse_csr(),
        LAYOUT.replace("{layout}", "torch.sparse_csr"),
    ),
    "mkldnn": (lambda t: t.to_mkldnn(), LAYOUT.replace("{layout}", "torch._mkldnn")),
    "nested": (lambda t: torch.nested.nested_tensor([t]), NESTED),
    "jagged": (
        lambda t: torch.nested.nested_tensor([rows(t)], layout=torch.jagged),
        NESTED,
    ),
}

# What of these PyTorch's compiler refuses before it reaches any operator, with a text of its own.
NOT_OURS = {"quantized", "sparse", "sparse rows", "nested", "mkldnn"}

SHAPES: dict[str, tuple[str, Callable[[torch.Tensor], Any], str]] = {
    "x: an axis more": (
        "x",
        lambda t: t[None],
        "x has shape [1, 3, 8], but the signature needs [M, N]",
    ),
    "x: 0-d": ("x", lambda t: t.sum(), "x has shape [], but the signature needs [M, N]"),
    "x: another width": (
        "x",
        lambda t: t[:, :5],
        "scale has shape [8], but the signature needs [N] = [5]",
    ),
    "x: more than 2^31 rows": (
        "x",
        lambda t: torch.zeros(1).expand(2**31 + 8, 5),
        "scale has shape [8], but the signature needs [N] = [5]",
    ),
    "x: None": ("x", lambda t: None, "x is None, but the signature needs a Tensor"),
    "x: another device": (
        "x",
        lambda t: t.to("meta"),
        "scale is on cpu, but the call's first tensor is on meta; move one of them",
    ),
    "x: the other float": (
        "x",
        lambda t: t.double(),
        "scale has dtype float32, but the signature needs T = float64",
    ),
}
for _name in ("scale", "total"):
    SHAPES |= {
        f"{_name}: an axis more": (
            _name,
            lambda t: t[None],
            f"{_name} has shape [1, 8], but the signature needs [N] = [8]",
        ),
        f"{_name}: 0-d": (
            _name,
            lambda t: t.sum(),
            f"{_name} has shape [], but the signature needs [N] = [8]",
        ),
        f"{_name}: another size": (
            _name,
            lambda t: t[:5],
            f"{_name} has shape [5], but the signature needs [N] = [8]",
        ),
        f"{_name}: one that would broadcast": (
            _name,
            lambda t: t[:1],
            f"{_name} has shape [1], but the signature needs [N] = [8]",
        ),
        f"{_name}: more than 2^31 elements": (
            _name,
            lambda t: torch.zeros(1).expand(2**31 + 8),
            f"{_name} has shape [2147483656], but the signature needs [N] = [8]",
        ),
        f"{_name}: another device": (
            _name,
            lambda t: t.to("meta"),
            f"{_name} is on meta, but the call's first tensor is on cpu; move one of them",
        ),
        f"{_name}: the other float": (
            _name,
            lambda t: t.double(),
            f"{_name} has dtype float64, but the signature needs T = float32",
        ),
    }


def arguments() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(3, 8), "scale": torch.randn(8), "total": torch.zeros(8)}


def works(op: Any) -> None:
    good = arguments()
    y = op(**good)
    torch.testing.assert_close(y, good["x"] * good["scale"])
    torch.testing.assert_close(good["total"], y.sum(0))


def refused(op: Any, name: str, make: Callable[[torch.Tensor], Any], text: str) -> None:
    """Cold, warm, and with every call sent through the dispatcher."""
    for bypass in (True, True, False):
        set_dispatcher_bypass(bypass)
        try:
            good = arguments()
            before = good["total"].clone()
            with pytest.raises(ArgumentError) as error:
                op(**{**good, name: make(good[name])})
            assert str(error.value) == f"TallyFwdOp: {text}"
            assert torch.equal(good["total"], before), "a refused call wrote"
            works(op)
        finally:
            set_dispatcher_bypass(True)


def refused_compiled(op: Any, name: str, make: Callable[[torch.Tensor], Any], text: str) -> None:
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True, dynamic=False)
    good = arguments()
    with pytest.raises((TorchRuntimeError, Unsupported)) as error:
        compiled(**{**good, name: make(good[name])})
    # Within PyTorch's own text, as the whole text of an error of ours.
    assert re.search(rf"\w+Error\(['\"]TallyFwdOp: {re.escape(text)}['\"]\)", str(error.value))
    works(compiled)


def text_of(template: str, name: str) -> str:
    return template.format(
        a=name,
        or_none="" if name == "x" else " or None",
        t="T = float32 or float64" if name == "x" else "T = float32",
    )


@pytest.mark.parametrize("name", ["x", "scale", "total"])
@pytest.mark.parametrize("wrong", WRONG)
def test_the_wrong_kind(ops: ModuleType, wrong: str, name: str) -> None:
    make, template = WRONG[wrong]
    refused(ops.TallyFwdOp(target="filling"), name, make, text_of(template, name))


@pytest.mark.parametrize("wrong", sorted(WRONG.keys() - NOT_OURS))
def test_the_wrong_kind_compiled(ops: ModuleType, wrong: str) -> None:
    make, template = WRONG[wrong]
    for name in ("x", "scale", "total"):
        refused_compiled(ops.TallyFwdOp(), name, make, text_of(template, name))


@pytest.mark.parametrize("wrong", SHAPES)
def test_the_wrong_metadata(ops: ModuleType, wrong: str) -> None:
    refused(ops.TallyFwdOp(target="filling"), *SHAPES[wrong])


@pytest.mark.parametrize("wrong", SHAPES)
def test_the_wrong_metadata_compiled(ops: ModuleType, wrong: str) -> None:
    refused_compiled(ops.TallyFwdOp(), *SHAPES[wrong])


@pytest.mark.parametrize("wrong", sorted(NOT_OURS - {"mkldnn"}))
def test_what_the_compiler_itself_refuses(ops: ModuleType, wrong: str) -> None:
    """It never reaches an operator; should a release let it through, the text becomes ours."""
    compiled = torch.compile(ops.TallyFwdOp(), backend="aot_eager", fullgraph=True)
    good = arguments()
    with pytest.raises(Unsupported):
        compiled(**{**good, "x": WRONG[wrong][0](good["x"])})
    works(compiled)


def test_mkldnn_compiled(ops: ModuleType) -> None:
    """Its fake looks strided; the body refuses it. (A graph that writes fails before, in
    PyTorch.)"""
    op = ops.TwiceFwdOp()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    with pytest.raises(ArgumentError) as error:
        compiled(torch.randn(3, 8).to_mkldnn())
    assert str(error.value) == "TwiceFwdOp: " + text_of(WRONG["mkldnn"][1], "x")
    x = torch.randn(3, 8)
    torch.testing.assert_close(compiled(x), x * 2)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "TallyFwdOp.__call__() missing 1 required positional argument: 'x'"),
        (
            {"x": 1, "weight": 2},
            "TallyFwdOp.__call__() got an unexpected keyword argument 'weight'",
        ),
    ],
)
def test_missing_and_unknown_arguments_are_python_s_own_error(
    ops: ModuleType, given: Any, text: str
) -> None:
    op = ops.TallyFwdOp()
    for _ in range(2):
        with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
            op(**given)
        works(op)


def test_an_argument_too_many_and_one_given_twice(ops: ModuleType) -> None:
    op, x = ops.TallyFwdOp(), torch.randn(3, 8)
    with pytest.raises(TypeError) as error:
        op(x, None, None, x)
    assert str(error.value) == (
        "TallyFwdOp.__call__() takes from 2 to 4 positional arguments but 5 were given"
    )
    with pytest.raises(TypeError) as error:
        op(x, x=x)
    assert str(error.value) == "TallyFwdOp.__call__() got multiple values for argument 'x'"
    # ``out`` can only be named: a tensor in its place is no argument of the op.
    with pytest.raises(TypeError) as error:
        ops.TwiceFwdOp()(x, x)
    assert str(error.value) == (
        "TwiceFwdOp.__call__() takes 2 positional arguments but 3 were given"
    )
    works(op)


# -- views that PyTorch keeps lazy: right results, no error ---------------------------------------


def negated() -> torch.Tensor:
    view = torch.complex(torch.randn(3, 8), torch.randn(3, 8)).conj().imag
    assert view.is_neg()
    return view


@pytest.mark.parametrize("target", ["reference", "filling"])
@pytest.mark.parametrize("backend", ["none", "eager", "aot_eager"])
def test_a_negated_view_is_read(ops: ModuleType, backend: str, target: str) -> None:
    op = ops.TwiceFwdOp(target=target)
    call = op if backend == "none" else torch.compile(op, backend=backend, fullgraph=True)
    op(torch.randn(3, 8))
    for _ in range(2):
        x = negated()
        torch.testing.assert_close(call(x), x * 2)


@pytest.mark.parametrize("target", ["reference", "filling"])
@pytest.mark.parametrize("backend", ["none", "eager", "aot_eager"])
def test_a_negated_view_is_written(ops: ModuleType, backend: str, target: str) -> None:
    """PyTorch's kernel for such views took an operator's results for what it wrote, and failed."""
    op, by = ops.BumpFwdOp(target=target), torch.randn(8)
    call = op if backend == "none" else torch.compile(op, backend=backend, fullgraph=True)
    op(torch.randn(3, 8), by)
    for _ in range(2):
        x = negated()
        wanted, version = x + by, x._version
        assert call(x, by) is None
        torch.testing.assert_close(x.resolve_neg(), wanted)
        assert x.is_neg()
        assert x._version > version


def test_a_negated_view_among_results(ops: ModuleType) -> None:
    """A written tensor beside an allocated result, and an ``out``: each where it belongs."""
    total = negated()[0]
    before, x = total * 1, torch.randn(3, 8)
    y = ops.TallyFwdOp()(x, total=total)
    torch.testing.assert_close(y, x * 2)
    torch.testing.assert_close(total.resolve_neg(), before + y.sum(0))
    out = negated()
    assert ops.TwiceFwdOp()(x, out=out) is out
    torch.testing.assert_close(out.resolve_neg(), x * 2)


def test_a_negated_view_made_in_the_graph_under_inductor(ops: ModuleType) -> None:
    """As an input of the graph, inductor of PyTorch 2.13 reads it wrong: for ``x * 2`` too."""
    op = ops.TwiceFwdOp()
    compiled = torch.compile(lambda x: op(torch._neg_view(x + 1)), fullgraph=True)
    x = torch.randn(3, 8)
    torch.testing.assert_close(compiled(x), -2 * (x + 1))


def test_a_negated_view_of_another_argument_overlaps_it(ops: ModuleType) -> None:
    """Its values are copied before the body runs, and there the copies lie apart."""
    z = torch.complex(torch.randn(3, 8), torch.randn(3, 8))
    op = ops.TurnFwdOp()
    for _ in range(2):
        with pytest.raises(ArgumentError) as error:
            op(z.conj().imag, z.imag)
        assert str(error.value) == (
            "TurnFwdOp: q is written and shares memory with k; pass tensors that do not overlap, "
            "such as k.clone()"
        )
    q, k = z.imag.clone(), z.real.clone()
    torch.testing.assert_close(op(z.imag, z.real), 2 * q + 3 * k)


# -- more than 2^31 elements ----------------------------------------------------------------------


def test_the_fake_of_more_than_two_to_the_31_elements(ops: ModuleType) -> None:
    size = 2**31 + 8
    x = torch.empty(1, device="meta").expand(3, size)
    y, mean, _ = ops.MomentsFwdOp()(x)
    assert (y.shape, y.stride(), mean.shape) == ((3, size), (size, 1), (3,))
    wide = torch.empty(1, device="meta", dtype=torch.float64).expand(2**18, 2**20, 2**20)
    assert ops.TwiceFwdOp()(wide).stride() == (2**40, 2**20, 1)


def test_views_far_apart_in_one_huge_buffer_do_not_overlap(ops: ModuleType) -> None:
    """The distance between them does not fit 32 bits."""
    room = torch.empty(3 * 2**31, device="meta")
    low, high = room[: 2**31 + 8].view(1, -1), room[-(2**31 - 8) :][:24].view(3, 8)
    op = ops.TurnFwdOp()
    with pytest.raises(ArgumentError) as error:
        op(low, high)
    assert "k has shape [3, 8], but the signature needs [S, D] = [1, 2147483656]" in str(
        error.value
    )
    assert op(low[:, :8], high[:1]).shape == (1, 8)
    with pytest.raises(ArgumentError) as error:
        op(room[2**31 : 2**31 + 8][None], room[2**31 + 7 : 2**31 + 15][None])
    assert "q is written and shares memory with k" in str(error.value)
