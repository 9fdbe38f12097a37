"""RMSNormFwdOp: what its users see, on the CPU; the kernels' own tests are beside these."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import pytest
import torch

from tileops.core.errors import ArgumentError, GradientError, ParamError, TargetError
from tileops.core.testing import GraphRecorder
from tileops.norm import RMSNormFwdOp

OPERATOR = "tileops::norm_rms_norm_fwd"
BACKENDS = ["aot_eager", "inductor"]


X8 = torch.randn(2, 8)


def oracle(
    x: torch.Tensor, weight: torch.Tensor | None, axes: int, eps: float | None
) -> torch.Tensor:
    """The formula in float64; ``eps=None`` is float32's epsilon whatever the dtype."""
    dims = tuple(range(-axes, 0))
    x = x.double()
    y = x / (x.pow(2).mean(dims, keepdim=True) + (2.0**-23 if eps is None else eps)).sqrt()
    return y if weight is None else y * weight.double()


def one_rounding(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """float32 sums, then one rounding to the output's dtype."""
    unit = torch.finfo(actual.dtype).eps / 2
    # 2**-20 covers the float32 arithmetic: a sum over a row in any order, a reciprocal root and
    # two products; tiny covers results that are subnormal in the output's dtype.
    torch.testing.assert_close(
        actual.double(),
        expected,
        rtol=unit * 1.001 + 2**-20,
        atol=torch.finfo(actual.dtype).smallest_normal * unit * 2,
    )


def test_names_its_operator() -> None:
    assert RMSNormFwdOp.compile_op_names == (OPERATOR,)


@pytest.mark.parametrize("weight_dtype", [None, "same", torch.float32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("rows", "shape", "eps"),
    [((), (7,), None), ((1,), (1,), 1e-6), ((3, 5), (129,), 1e-5), ((2, 1, 3), (4, 33), 0.0)],
)
def test_equals_the_float64_formula(
    dtype: torch.dtype, weight_dtype: Any, rows: Any, shape: Any, eps: float | None
) -> None:
    op = RMSNormFwdOp(shape, eps)
    x = torch.randn(*rows, *shape).to(dtype)
    weight = None
    if weight_dtype is not None:
        weight = torch.randn(shape).to(dtype if weight_dtype == "same" else weight_dtype)
    y = op(x, weight)
    assert (y.shape, y.dtype, y.is_contiguous()) == (x.shape, dtype, True)
    one_rounding(y, oracle(x, weight, len(shape), eps))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_no_eps_is_what_pytorch_computes_with(dtype: torch.dtype) -> None:
    """PyTorch documents the epsilon of x's dtype, and takes that of float32."""
    x = (torch.randn(4, 64) * 1e-3).to(dtype)
    theirs = torch.nn.functional.rms_norm(x, (64,))
    one_rounding(theirs, oracle(x, None, 1, 2.0**-23))
    one_rounding(RMSNormFwdOp(64)(x), oracle(x, None, 1, 2.0**-23))


@pytest.mark.parametrize("weight_dtype", ["same", torch.float32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_weight_offset_is_added_in_float32(dtype: torch.dtype, weight_dtype: Any) -> None:
    """As in Gemma's own module. 1 + 2**-12 is no float16 or bfloat16: to round the sum of weight
    and offset, or the norm before the product, would show."""
    x = torch.randn(5, 96).to(dtype)
    weight = (torch.randn(96) * 2.0**-10).to(dtype if weight_dtype == "same" else weight_dtype)
    y = RMSNormFwdOp(96, 1e-6, weight_offset=1.0)(x, weight)
    one_rounding(y, oracle(x, weight.double() + 1, 1, 1e-6))
    gemma = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    gemma = (gemma * (1.0 + weight.float())).type_as(x)
    assert torch.equal(y, gemma)


def test_a_weight_offset_needs_a_weight() -> None:
    """None is all ones, and ones and an offset would be no Gemma."""
    op = RMSNormFwdOp(8, weight_offset=1.0)
    with pytest.raises(ArgumentError) as error:
        op(torch.randn(2, 8))
    assert str(error.value) == (
        "RMSNormFwdOp: weight_offset is 1.0, and there is no weight to add it to; pass a "
        "weight, or make the op with weight_offset=0.0"
    )
    assert torch.equal(RMSNormFwdOp(8, weight_offset=0)(X8), RMSNormFwdOp(8)(X8))


def test_agrees_with_pytorch_where_it_is_not_finite() -> None:
    x = torch.randn(4, 16)
    x[0, 3], x[1, 5], x[2, 7] = float("nan"), float("inf"), -float("inf")
    expected = torch.nn.functional.rms_norm(x, (16,), eps=1e-5)
    torch.testing.assert_close(RMSNormFwdOp(16, 1e-5)(x), expected, equal_nan=True)


def test_no_rows() -> None:
    y = RMSNormFwdOp(16)(torch.empty(0, 16), torch.ones(16))
    assert (y.shape, y.dtype) == ((0, 16), torch.float32)


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_columns(shape: tuple[int, ...]) -> None:
    """As in PyTorch: nothing is divided by the number of columns."""
    op, x = RMSNormFwdOp(shape), torch.empty(4, *shape)
    assert op(x).shape == torch.nn.functional.rms_norm(x, shape).shape == (4, *shape)
    assert op(x.to("meta")).shape == (4, *shape)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles_into_one_node(backend: str, warm: bool, weighted: bool) -> None:
    """In both states that the specification names: nothing built yet, and already used."""
    op = RMSNormFwdOp(64)
    x, weight = torch.randn(3, 64), torch.randn(64) if weighted else None
    eager = RMSNormFwdOp(64)(x, weight)
    if warm:
        op(x, weight)
    recorder = GraphRecorder(backend)
    torch._dynamo.reset()
    compiled = torch.compile(op, backend=recorder, fullgraph=True)(x, weight)
    assert recorder.calls == [[OPERATOR]]
    torch.testing.assert_close(compiled, eager, rtol=0, atol=0)
    assert op.serving_target == "reference"


@pytest.mark.parametrize("backend", ["eager", *BACKENDS])
def test_a_transposed_input_gives_a_contiguous_output(backend: str) -> None:
    op = RMSNormFwdOp(64)
    x = torch.randn(64, 5).t()
    plain = op(x.contiguous())
    torch._dynamo.reset()
    for y in (op(x), torch.compile(op, backend=backend, fullgraph=True)(x)):
        assert y.is_contiguous()
        torch.testing.assert_close(y, plain, rtol=0, atol=0)


def test_a_meta_call_returns_metadata_and_resolves_nothing() -> None:
    op = RMSNormFwdOp(64)
    y = op(torch.empty(5, 3, 64, device="meta", dtype=torch.bfloat16).transpose(0, 1))
    assert (y.shape, y.dtype, y.device.type) == ((3, 5, 64), torch.bfloat16, "meta")
    assert y.stride() == (320, 64, 1)
    assert op.serving_target is None
    op(torch.randn(2, 64))
    assert op.serving_target == "reference"


def test_every_instance_has_a_key_of_its_own() -> None:
    first, second = RMSNormFwdOp(64), RMSNormFwdOp((64,))
    assert first._key != second._key
    assert first._key.rpartition("#")[0] == second._key.rpartition("#")[0]


def test_a_collected_instance_leaves_its_compiled_function_working() -> None:
    op = RMSNormFwdOp(48, 1e-3)
    x = torch.randn(2, 48)
    expected = op(x)

    torch._dynamo.reset()
    graph = torch.compile(op, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(graph(x), expected)
    operator = torch.ops.tileops.norm_rms_norm_fwd
    key, gone = op._key, weakref.ref(op)
    torch._dynamo.reset()
    del op, graph
    gc.collect()
    assert gone() is None
    torch.testing.assert_close(operator(x, None, key), expected)


def test_params_take_their_canonical_form_and_then_stand_still() -> None:
    op = RMSNormFwdOp(64)
    assert op.normalized_shape == (64,)
    assert RMSNormFwdOp([4, 16], 1).eps == 1.0
    assert repr(RMSNormFwdOp(64, target="reference")) == (
        "RMSNormFwdOp(normalized_shape=(64,), eps=None, weight_offset=0.0, target='reference')"
    )
    with pytest.raises(ParamError) as error:
        op.eps = 1e-3
    assert str(error.value) == (
        "RMSNormFwdOp: eps is fixed when the op is built, because compiled code relies on it; "
        "build another instance with eps=0.001"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("64",),
            "RMSNormFwdOp: normalized_shape is '64', but the signature needs an int or a sequence "
            "of ints, none negative",
        ),
        (
            (True,),
            "RMSNormFwdOp: normalized_shape is True, but the signature needs an int or a sequence "
            "of ints, none negative",
        ),
        (
            ((4, -1),),
            "RMSNormFwdOp: normalized_shape is (4, -1), but the signature needs an int or a "
            "sequence of ints, none negative",
        ),
        (
            (None,),
            "RMSNormFwdOp: normalized_shape is None, but the signature needs an int or a sequence "
            "of ints, none negative",
        ),
        ((64, "x"), "RMSNormFwdOp: eps is 'x', but the signature needs a float, or None"),
        ((64, -1.0), "RMSNormFwdOp: eps is -1.0; it is at least 0"),
        (((),), "RMSNormFwdOp: normalized_shape has no axes; at least one is normalized"),
    ],
)
def test_wrong_params(arguments: Any, text: str) -> None:
    with pytest.raises(ParamError) as error:
        RMSNormFwdOp(*arguments)
    assert str(error.value) == text


def test_the_target_is_a_name() -> None:
    with pytest.raises(ParamError) as error:
        RMSNormFwdOp(64, target=3)  # type: ignore[arg-type]
    assert str(error.value) == (
        "RMSNormFwdOp: target is 3, but it must be the name of a target, or None"
    )


X = torch.randn(3, 4096)
WRONG_CALLS = {
    "weight shape": (
        (X, torch.randn(2048)),
        "RMSNormFwdOp: weight has shape [2048], but the signature needs [*normalized_shape] = "
        "[4096]",
    ),
    "weight rank": (
        (X, torch.randn(1, 4096)),
        "RMSNormFwdOp: weight has shape [1, 4096], but the signature needs [*normalized_shape] = "
        "[4096]",
    ),
    "x width": (
        (torch.randn(3, 4095),),
        "RMSNormFwdOp: x has shape [3, 4095], but the signature needs [*B, *normalized_shape] = "
        "[3, 4096]",
    ),
    "0-d": (
        (torch.tensor(1.0),),
        "RMSNormFwdOp: x has shape [], but the signature needs [*B, *normalized_shape] = "
        "[*B, 4096]",
    ),
    "x dtype": (
        (X.long(),),
        "RMSNormFwdOp: x has dtype int64, but the signature needs T = float16, bfloat16 or float32",
    ),
    "weight dtype": (
        (X, torch.randn(4096).half()),
        "RMSNormFwdOp: the call has T = float32 (x), W = float16 (weight), but the signature needs "
        "one of: T = float16, W = float16; T = float16, W = float32; T = bfloat16, W = bfloat16; "
        "T = bfloat16, W = float32; T = float32, W = float32; convert one of them",
    ),
    "two devices": (
        (X, torch.randn(4096, device="meta")),
        "RMSNormFwdOp: weight is on meta, but the call's first tensor is on cpu; move one of them",
    ),
    "None": ((None,), "RMSNormFwdOp: x is None, but the signature needs a Tensor"),
    "list": (
        ([1.0],),
        "RMSNormFwdOp: x is of type list, but the signature needs a Tensor",
    ),
    "sparse": (
        (X.to_sparse(),),
        "RMSNormFwdOp: x has the layout torch.sparse_coo, but the signature needs torch.strided; "
        "convert it, for example with x.to_dense()",
    ),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call_says_what_is_wrong_and_the_next_one_works(case: str) -> None:
    arguments, text = WRONG_CALLS[case]
    op = RMSNormFwdOp(4096)
    with pytest.raises(ArgumentError) as error:
        op(*arguments)
    assert str(error.value) == text
    assert op.serving_target is None
    one_rounding(op(X), oracle(X, None, 1, None))


@pytest.mark.parametrize("case", [case for case in WRONG_CALLS if case != "sparse"])
def test_a_wrong_call_says_so_at_trace_time_too(case: str) -> None:
    arguments, text = WRONG_CALLS[case]
    op = RMSNormFwdOp(4096)
    torch._dynamo.reset()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    # The type is dynamo's own; the text is ours.
    with pytest.raises(Exception, match=re.escape(text)):
        compiled(*arguments)
    one_rounding(compiled(X), oracle(X, None, 1, None))


def test_gradients_are_refused_and_never_lost() -> None:
    op = RMSNormFwdOp(64)
    x = torch.randn(2, 64, requires_grad=True)
    y = op(x)
    with pytest.raises(GradientError, match="RMSNormFwdOp serves inference"):
        y.sum().backward()
    with torch.no_grad():
        assert not op(x).requires_grad


def test_an_unknown_target_is_named_with_those_that_exist() -> None:
    op = RMSNormFwdOp(64, target="triton")
    with pytest.raises(TargetError) as error:
        op(torch.randn(2, 64))
    assert str(error.value) == (
        "RMSNormFwdOp: no target is named 'triton'; the targets are 'tilelang', 'reference'"
    )
    assert op.serving_target is None


def test_the_in_tree_kernels_do_not_serve_the_cpu() -> None:
    op = RMSNormFwdOp(64, target="tilelang")
    with pytest.raises(TargetError) as error:
        op(torch.randn(2, 64))
    assert str(error.value) == (
        "RMSNormFwdOp: the target 'tilelang' serves CUDA devices, and the call's tensors are on "
        "cpu; use target='reference', which serves any device"
    )
    assert op.serving_target is None


@pytest.mark.gpu
def test_on_cuda_it_compiles_cold_and_is_captured_after_a_warm_up() -> None:
    op = RMSNormFwdOp(4096)
    x = torch.randn(2048, 4096, device="cuda", dtype=torch.float16)
    weight = torch.randn(4096, device="cuda", dtype=torch.float16)
    recorder = GraphRecorder("inductor")
    torch._dynamo.reset()
    y = torch.compile(op, backend=recorder, fullgraph=True)(x, weight)
    assert recorder.calls == [[OPERATOR]]
    assert op.serving_target == "tilelang"
    one_rounding(y, oracle(x, weight, 1, None))

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = op(x, weight)
    x.copy_(torch.randn_like(x))
    captured.fill_(float("nan"))
    graph.replay()
    one_rounding(captured, oracle(x, weight, 1, None))


@pytest.mark.gpu
def test_on_cuda_a_cold_call_in_a_capture_is_refused_and_can_be_retried() -> None:
    from tileops.core.errors import CaptureError

    op = RMSNormFwdOp(4093)
    x = torch.randn(2, 4093, device="cuda")
    graph = torch.cuda.CUDAGraph()
    refused = pytest.raises(CaptureError, match="this instance has served no call on cuda:0 yet")
    with refused, torch.cuda.graph(graph):
        op(x)
    op(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = op(x)
    graph.replay()
    one_rounding(captured, oracle(x, None, 1, None))


@pytest.mark.gpu
@pytest.mark.parametrize("weight_dtype", [None, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [1, 127, 513, 4096, 4097, 32768, 100000])
def test_on_cuda_it_equals_the_float64_formula(
    width: int, weight_dtype: torch.dtype | None
) -> None:
    op = RMSNormFwdOp(width, 1e-5)
    weight = None
    if weight_dtype is not None:
        weight = torch.randn(width, device="cuda").to(weight_dtype)
    whole = torch.randn(3, 5, width + 1, device="cuda").bfloat16()
    for x in (whole[..., :-1], whole[..., 1:].contiguous(), whole.flatten()[1 : width + 1]):
        one_rounding(op(x, weight), oracle(x, weight, 1, 1e-5))
