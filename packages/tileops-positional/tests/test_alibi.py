"""AlibiFwdOp against the paper's slopes, eager and fused into a model."""

from __future__ import annotations

import math
import re
import shutil

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.core import tilelang_backend
from tileops.core.errors import ParamError, TargetError
from tileops.core.testing import GraphRecorder, assert_close_to_oracle
from tileops.positional import AlibiFwdOp
from tileops.positional.alibi.configs import choose_config
from tileops.positional.alibi.programs import alibi

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def paper_slopes(heads: int) -> list[float]:
    """The rule as the paper's section 3 and its footnote give it, without the reference's steps."""
    if math.log2(heads).is_integer():
        ratio = 2.0 ** (-8 / heads)
        return [ratio ** (k + 1) for k in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return paper_slopes(below) + paper_slopes(2 * below)[0::2][: heads - below]


def oracle(heads: int, length: int) -> torch.Tensor:
    slope = torch.tensor(paper_slopes(heads), dtype=torch.float64)
    table = torch.empty(heads, length, length, dtype=torch.float64)
    for i in range(length):
        for j in range(length):
            table[:, i, j] = -slope * abs(i - j)
    return table


def test_it_has_no_boundary() -> None:
    assert AlibiFwdOp.compile_op_names == ()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "length"), [(1, 1), (2, 3), (3, 17), (8, 5), (12, 33), (71, 2), (112, 9)]
)
def test_equals_the_papers_slopes(heads: int, length: int, dtype: torch.dtype) -> None:
    op = AlibiFwdOp(length, heads, dtype=dtype)
    bias = op()
    assert (bias.shape, bias.dtype) == ((heads, length, length), dtype)
    assert bias.is_contiguous()
    assert_close_to_oracle(op, "bias", bias, oracle(heads, length))
    assert op.serving_target == "reference"


def test_no_positions() -> None:
    assert AlibiFwdOp(0, 4)().shape == (4, 0, 0)


def test_inductor_fuses_the_table_into_what_reads_it() -> None:
    """One kernel, which reads the scores and writes the sum: the table is never in memory."""
    op = AlibiFwdOp(33, 12)
    scores = torch.randn(2, 12, 33, 33)
    torch._dynamo.reset()
    compiled = torch.compile(lambda scores: scores + op(), fullgraph=True)
    found, (code,) = run_and_get_code(compiled, scores)
    torch.testing.assert_close(found, scores + op(), rtol=1e-6, atol=1e-6)
    assert len(set(re.findall(r"^cpp_fused_\w+ = ", code, re.M))) == 1
    assert "extern_kernels" not in code.partition("def call(")[2]
    assert len(re.findall(r"= empty_strided_cpu\(", code)) == 1


def test_a_model_that_holds_one_compiles_in_one_graph() -> None:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = torch.nn.Linear(24, 72)
            self.alibi = AlibiFwdOp.shared(7, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.project(x).view(x.shape[0], 7, 3, 3, 8).permute(2, 0, 3, 1, 4)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, self.alibi())

    model, x = Attention(), torch.randn(2, 7, 24)
    recorder = GraphRecorder("inductor")
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend=recorder, fullgraph=True)(x)
        torch.testing.assert_close(found, model(x))
    assert len(recorder.graphs) == 1


def test_an_explicit_target_cannot_serve_a_traced_call() -> None:
    op = AlibiFwdOp(8, 4, target="tilelang")
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="AlibiFwdOp: the target 'tilelang'"):
        torch.compile(lambda x: x + op(), backend="eager", fullgraph=True)(torch.zeros(8))
    with pytest.raises(TargetError, match="serves CUDA devices"):
        op()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1, 4), "AlibiFwdOp: seq_len is -1; it is at least 0"),
        ((4, 0), "AlibiFwdOp: num_heads is 0; it is at least 1"),
        ((4.0, 1), "AlibiFwdOp: seq_len is 4.0, but the signature needs an int"),
        (
            (2**63, 1),
            "AlibiFwdOp: seq_len is 9223372036854775808, but the signature needs an int of 64 bits",
        ),
        (
            (2**31, 1),
            "AlibiFwdOp: seq_len is 2147483648 and num_heads is 1; a table of so many float32 "
            "numbers has 2**63 bytes or more",
        ),
    ],
)
def test_params_are_checked(arguments: tuple[int, int], text: str) -> None:
    with pytest.raises(ParamError) as error:
        AlibiFwdOp(*arguments)
    assert str(error.value) == text


def test_only_floating_dtypes() -> None:
    with pytest.raises(ParamError) as error:
        AlibiFwdOp(4, 4, dtype=torch.int32)
    assert str(error.value) == (
        "AlibiFwdOp: dtype is torch.int32, but the signature needs one of 'float32', 'float16', "
        "'bfloat16'"
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_table_has_a_layout(dtype: str) -> None:
    """Bands of whole accesses, none of which spans more than two rows, and blocks that launch."""
    for length in (*range(1, 70), 129, 384, 511, 514, 2047, 2048, 65537):
        for heads in (1, 3, 32, 112, 2**12):
            found = choose_config(heads, length, dtype)
            where = (heads, length, found)
            assert found.rows * length % found.vector == 0, where
            assert found.vector <= max(length, 1), where
            # From band to band a thread passes the end of one head at most.
            assert found.rows <= length, where
            assert found.threads % 32 == 0, where
            assert 32 <= found.threads <= 256, where
            assert found.bands in (1, 2, 4, 8, 16), where


@needs_nvcc
@pytest.mark.parametrize("length", [3, 2047, 2048])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_each_kind_of_program_builds(dtype: str, length: int) -> None:
    config = choose_config(32, length, dtype)
    program = tilelang_backend.build(lambda: alibi(dtype, config), arch="sm_90a")
    assert program.symbol == "alibi"
    # Where an access begins is worked out in 64 bits, and it is one.
    assert "int64_t at[1]" in program.source
    wide = {"float32": "*(float4*)", "float16": "*(uint4*)", "bfloat16": "*(uint4*)"}[dtype]
    assert (wide in program.source) == (length > 3)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "length"),
    # Every way in which rows make up accesses, one block to a table and many, and blocks that go
    # from one head to the next.
    [
        *[(1, 1), (3, 2), (5, 3), (12, 5), (2, 7), (7, 8), (71, 9), (3, 129), (32, 511)],
        *[(6, 514), (112, 384), (257, 12), (5, 1027), (1, 4104)],
    ],
)
def test_the_kernel(heads: int, length: int, dtype: torch.dtype) -> None:
    """Rows that whole accesses make up, and rows in which they begin and end anywhere."""
    op = AlibiFwdOp(length, heads, dtype=dtype, device="cuda")
    for _ in range(2):
        # What is freed here is what the next table is made in.
        torch.full((heads, length, length), math.nan, dtype=dtype, device="cuda")
        bias = op()
    slope = torch.tensor(paper_slopes(heads), dtype=torch.float64)
    position = torch.arange(length, dtype=torch.float64)
    exact = -slope[:, None, None] * (position[:, None] - position[None]).abs()
    assert op.serving_target == "tilelang"
    assert_close_to_oracle(op, "bias", bias, exact)


@pytest.mark.gpu
def test_the_kernel_can_be_captured() -> None:
    op = AlibiFwdOp(64, 8, device="cuda")
    expected = op()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bias = op()
    bias.fill_(math.nan)
    graph.replay()
    torch.testing.assert_close(bias, expected, rtol=0, atol=0)


def test_a_fake_card_that_pytorch_was_built_without() -> None:
    """PyTorch cannot index its tensors."""
    with FakeTensorMode():
        table = AlibiFwdOp(4, 3, device="cuda:0")()
    assert (table.shape, table.device) == ((3, 4, 4), torch.device("cuda:0"))
