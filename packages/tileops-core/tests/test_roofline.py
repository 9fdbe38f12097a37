"""The least work of a call, and what an instance says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tileops.core import Op
from tileops.core.errors import ArgumentError, ParamError
from tileops.manifest import load_entry, load_text
from tileops.manifest.calls import least_work, resolve

ENTRY = """
name = "GatherSumFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Sums the rows of each sequence."
formula = "y[b] = sum of x[cu[b]:cu[b+1]]"
reference = "none"

[signature.dims]
N = "rows"
D = "columns"
E = "sequences and one"

[signature.dtypes]
T = ["float32", "bfloat16"]

[[signature.params]]
name = "scale"
type = "float"
optional = true

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["N", "D"]

[[signature.inputs]]
name = "cu"
dtype = "int32"
shape = ["E"]

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["E - 1", "D"]

[roofline]
flops = "sum(lengths(cu)) * D"
bytes = "N * D * itemsize(T) + 4 * E"
"""


class GatherSumFwdOp(
    Op,
    entry=load_text(ENTRY, path=Path("gather_sum_fwd.toml")),
):
    def __init__(self, scale: float | None = None, *, target: str | None = None) -> None:
        self.scale = scale
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, cu: torch.Tensor) -> Any:
        raise AssertionError("a roofline runs nothing")


def test_it_reads_dims_dtypes_and_values_and_runs_nothing() -> None:
    op = GatherSumFwdOp()
    x = torch.randn(7, 16, dtype=torch.bfloat16)
    cu = torch.tensor([0, 5, 7], dtype=torch.int32)
    assert op.roofline(x, cu) == (7 * 16, 7 * 16 * 2 + 4 * 3)
    assert op.roofline(x=x, cu=cu) == op.roofline(x, cu)
    assert op.serving_target is None


def test_a_call_that_is_not_valid_has_none() -> None:
    with pytest.raises(ArgumentError, match="GatherSumFwdOp: cu has dtype int64"):
        GatherSumFwdOp().roofline(torch.randn(7, 16), torch.tensor([0, 7]))


def test_it_agrees_with_the_manifest_on_every_workload() -> None:
    norm = pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    entry = load_entry("RMSNormFwdOp")
    for workload in entry.workloads:
        call = resolve(entry, workload)
        tensors = {
            name: torch.empty(facts.shape, dtype=getattr(torch, facts.dtype), device="meta")
            for name, facts in call.inputs.items()
            if facts is not None
        }
        op = norm.RMSNormFwdOp(**call.params)
        assert op.roofline(**tensors) == least_work(entry, call)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None,), "RMSNormFwdOp: x is None, but the signature needs a Tensor"),
        ((5,), "RMSNormFwdOp: x is of type int, but the signature needs a Tensor"),
        (
            (torch.ones(2, 8), 5),
            "RMSNormFwdOp: weight is of type int, but the signature needs a Tensor or None",
        ),
    ],
)
def test_what_is_no_tensor_is_refused_as_by_a_call(arguments: Any, message: str) -> None:
    norm = pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    op = norm.RMSNormFwdOp(8)
    for function in (op, op.roofline):
        with pytest.raises(ArgumentError) as error:
            function(*arguments)
        assert str(error.value) == message


def test_the_kernels_in_use_name_target_interface_and_call() -> None:
    norm = pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    op = norm.RMSNormFwdOp(8, target="reference")
    assert list(op.iter_kernels()) == []
    op(torch.randn(2, 8))
    op(torch.randn(3, 8).bfloat16())
    found = list(op.iter_kernels())
    assert [(one.target, one.interface, one.call.dtype) for one in found] == [
        ("reference", "rms_norm", torch.float32),
        ("reference", "rms_norm", torch.bfloat16),
    ]


def test_params_cannot_be_deleted() -> None:
    op = GatherSumFwdOp(2)
    with pytest.raises(ParamError) as error:
        del op.scale
    assert str(error.value) == (
        "GatherSumFwdOp: scale is fixed when the op is built and cannot be deleted"
    )
    assert repr(op) == "GatherSumFwdOp(scale=2.0)"
