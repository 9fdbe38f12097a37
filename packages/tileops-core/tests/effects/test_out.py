"""An ``out`` of the caller's: of exactly the right kind, filled, never resized."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core.errors import ArgumentError, GradientError

from .cases import randn


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (
            lambda: torch.empty(3, 9),
            "TwiceFwdOp: out has shape [3, 9], but the signature needs [*B, N] = [3, 8]",
        ),
        (
            lambda: torch.empty(0),
            "TwiceFwdOp: out has shape [0], but the signature needs [*B, N] = [3, 8]",
        ),
        (
            lambda: torch.empty(3, 8, dtype=torch.float64),
            "TwiceFwdOp: out has dtype float64, but the signature needs the output's = float32",
        ),
        (
            lambda: torch.empty(3, 8, device="meta"),
            "TwiceFwdOp: out is on meta, but the call's first tensor is on cpu; move one of them",
        ),
        (
            lambda: torch.empty(3, 8).to_sparse(),
            "TwiceFwdOp: out has the layout torch.sparse_coo, but the signature needs "
            "torch.strided; convert it, for example with out.to_dense()",
        ),
        (
            lambda: [1.0],
            "TwiceFwdOp: out is of type list, but the signature needs a Tensor or None",
        ),
        (
            lambda: torch.empty(8).expand(3, 8),
            "TwiceFwdOp: out is written, and several of its elements share one memory location "
            "(strides [0, 1]); pass a tensor that owns its elements, such as out.contiguous()",
        ),
    ],
)
def test_a_wrong_out_is_refused_and_never_resized(ops: ModuleType, out: Any, text: str) -> None:
    op = ops.TwiceFwdOp()
    x = randn(3, 8)
    for _ in range(2):
        wrong = out()
        shape = getattr(wrong, "shape", None)
        with pytest.raises(ArgumentError) as error:
            op(x, out=wrong)
        assert str(error.value) == text
        assert getattr(wrong, "shape", None) == shape
        good = torch.empty(3, 8)
        assert op(x, out=good) is good
        torch.testing.assert_close(good, x * 2)


def test_an_out_that_requires_grad_is_refused_in_grad_mode_and_filled_outside(
    ops: ModuleType,
) -> None:
    op, x = ops.TwiceFwdOp(), randn(3, 8)
    out = torch.zeros(3, 8, requires_grad=True)
    for _ in range(2):
        with pytest.raises(GradientError, match=r"^TwiceFwdOp: out is written and is a leaf that"):
            op(x, out=out)
        assert torch.equal(out, torch.zeros(3, 8))
    with torch.no_grad():
        assert op(x, out=out) is out
    torch.testing.assert_close(out.detach(), x * 2)
