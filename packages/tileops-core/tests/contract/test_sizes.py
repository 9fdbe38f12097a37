"""Which rows the runner leaves out and repeats by itself, and where it says that it cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tileops.core import Op
from tileops.core.contract import CompileCase
from tileops.core.contract.check import NotApplicable
from tileops.core.contract.sizes import rows_of, with_rows
from tileops.core.contract.subject import Subject

from .declare import TwiceOp, X, Y, case, entry, inputs, twice_op
from .good_ops import CASES

STARTS = """
[[signature.inputs]]
name = "starts"
dtype = "int32"
shape = ["B + 1"]
"""
LENGTHS = STARTS.replace("starts", "seqlens").replace("B + 1", "B")
NAMED = X.replace('"*B"', '"B"')
RESULT = Y.replace('"*B"', '"B"')


def op_with(name: str, more: str) -> type[Op]:
    text = entry(name, NAMED + more, RESULT, axes='B = "rows"')
    body = {"forward": lambda self, x, other: x.contiguous() * 2}
    return type(name, (TwiceOp,), body, entry=text)  # type: ignore[call-overload, no-any-return]


def made(rows: int, name: str, extra: int = 0) -> Any:
    def make(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        x = torch.randn(rows, 8, device=device, generator=generator)
        return {"x": x, name: torch.arange(rows + extra, dtype=torch.int32, device=device)}

    return make


def subject(one: CompileCase) -> Subject:
    return Subject(one, torch.device("cpu"), seed=2)


def test_rows_are_the_first_dim_of_the_first_tensor_wherever_it_is() -> None:
    plain = subject(CASES["alias and another output"])
    axes = rows_of(plain)
    assert axes == {"x": (0,)}
    base = plain.inputs()["x"]
    longer = with_rows(plain, axes, 7)["x"]
    assert longer.shape == (7, 5, 8)
    assert torch.equal(longer[3:6], base)
    assert with_rows(plain, axes, 0)["x"].shape == (0, 5, 8)
    assert rows_of(subject(CASES["out"])) == {"x": (0,), "out": (0,)}


def test_a_case_may_make_its_own() -> None:
    own = subject(CASES["sizes by the case"])
    assert with_rows(own, rows_of(own), 6)["x"].shape == (6, 8)


def reason(one: CompileCase) -> str:
    with pytest.raises(NotApplicable) as error:
        rows_of(subject(one))
    return str(error.value)


def test_a_size_that_is_computed_from_the_rows_needs_the_case_s_word() -> None:
    cls = op_with("RowsStartsFwdOp", STARTS)
    text = "starts has a size that is B + 1; give the case rows='B', or sized="
    assert reason(case(cls, make=made(3, "starts", 1))) == text


def test_values_that_may_count_rows_need_the_case_s_word() -> None:
    """A kernel that reads lengths of other rows may read beyond its tensors."""
    cls = op_with("RowsLengthsFwdOp", LENGTHS)
    text = (
        "the values of seqlens may depend on the number of rows; give the case rows='B', or sized="
    )
    assert reason(case(cls, make=made(3, "seqlens"))) == text
    named = subject(case(cls, make=made(3, "seqlens"), rows="B"))
    assert rows_of(named) == {"x": (0,), "seqlens": (0,)}
    assert with_rows(named, rows_of(named), 4)["seqlens"].tolist() == [0, 1, 2, 0]


def test_a_case_without_rows_has_none_to_repeat() -> None:
    def empty(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        return {"x": inputs(device, generator)["x"][:0]}

    none = subject(case(twice_op("RowsNoneFwdOp"), make=empty))
    assert with_rows(none, rows_of(none), 0)["x"].shape == (0, 5, 8)
    with pytest.raises(NotApplicable, match="the case itself has no rows"):
        with_rows(none, rows_of(none), 2)


def test_a_dim_that_no_tensor_of_the_case_has_is_named() -> None:
    one = case(twice_op("RowsNamedFwdOp"), rows="M")
    assert reason(one) == "no tensor of the case has an axis of the dim M"
    assert reason(CASES["no call-time tensor"]) == "the op has no call-time tensor"
