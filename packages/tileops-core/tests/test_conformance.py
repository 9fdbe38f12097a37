"""The manifest's third level: an entry against the class that implements it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tileops.core import Op, conformance
from tileops.core.cli import main
from tileops.manifest import Entry, load_entry, load_text

ENTRY = """
name = "HalveFwdOp"
family = "test"
status = "implemented"
since = "0.1.0"
summary = "Scales."
formula = "y = x * scale"
reference = "torch.mul"

[signature.dims]
"*B" = "all axes"

[signature.dtypes]
T = ["float32"]

[[signature.params]]
name = "scale"
type = "float"
default = 0.5

[[signature.params]]
name = "mode"
type = "str"
choices = ["a", "b"]
optional = true
keyword_only = true

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B"]

[[signature.inputs]]
name = "row"
dtype = "T"
shape = ["*B"]
optional = true

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B"]

[[workloads]]
label = "small"
model = "none"
phase = "test"
params = { scale = 0.5 }
dims = { B = [2, 3] }
dtypes = { T = "float32" }
present = []
"""


def entry(text: str = ENTRY) -> Entry:
    return load_text(text, path=Path("halve_fwd.toml"))


class HalveFwdOp(Op, entry=entry()):
    def __init__(
        self, scale: float = 0.5, *, mode: str | None = None, target: str | None = None
    ) -> None:
        self.scale = scale
        self.mode = mode
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, row: torch.Tensor | None = None) -> torch.Tensor:
        return x * self.scale


def faults(cls: type[Op], checked: Entry | None = None) -> list[str]:
    return [str(fault) for fault in conformance.check_class(checked or cls.entry, cls)]


def test_the_in_tree_ops_conform() -> None:
    pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    assert conformance.check([load_entry("RMSNormFwdOp")]) == []


def test_a_class_that_is_as_its_entry_says() -> None:
    assert faults(HalveFwdOp) == []


def test_a_constructor_that_takes_something_else() -> None:
    def init(self: Any, scale: float = 0.25, mode: str | None = None) -> None: ...

    cls = type("Other", (HalveFwdOp,), {"__init__": init}, entry=entry())
    assert faults(cls) == [
        "halve_fwd.toml: the constructor takes the entry's params: (scale=0.5, *, mode=None, "
        "target=None); found (scale=0.25, mode=None); mend Other.__init__ or signature.params"
    ]


def test_a_forward_that_takes_something_else() -> None:
    cls = type("Other", (HalveFwdOp,), {"forward": lambda self, x: x}, entry=entry())
    assert faults(cls) == [
        "halve_fwd.toml: forward takes the entry's inputs: (x, row=None); found (x); mend "
        "Other.forward or signature.inputs"
    ]


def test_an_op_that_names_its_own_operators() -> None:
    cls = type("Other", (HalveFwdOp,), {}, entry=entry())
    cls.compile_op_names = ("tileops::mine",)
    assert faults(cls) == [
        "halve_fwd.toml: compile_op_names is ('tileops::test_halve_fwd',); found "
        "('tileops::mine',); leave the boundary to the base class: an op does not name its "
        "operators"
    ]


def test_a_fake_that_gives_something_else_on_a_workload() -> None:
    def call(self: Any, x: torch.Tensor, row: Any = None) -> torch.Tensor:
        return x.new_empty(3, 2).t()

    cls = type("Other", (HalveFwdOp,), {}, entry=entry())
    cls.__call__ = call  # type: ignore[method-assign]
    (text,) = faults(cls)
    assert text.endswith(
        "on the workload 'small' the fake gives y float32[2, 3], contiguous; found "
        "y float32[2, 3], strides [1, 2]; leave the fake to the base class, or mend "
        "signature.outputs"
    )


def test_a_workload_that_the_class_refuses() -> None:
    refusing = entry(ENTRY + '[[signature.rules]]\nrequire = "len(B) > 4"\nmessage = "no"\n')
    cls = type("Other", (HalveFwdOp,), {}, entry=refusing)
    (text,) = faults(cls)
    assert "the workload 'small' is a valid call of Other; found HalveFwdOp: no; mend" in text


def test_a_class_for_a_planned_entry() -> None:
    planned = entry(ENTRY.replace('"implemented"', '"planned"'))
    (text,) = faults(HalveFwdOp, planned)
    assert text.startswith("halve_fwd.toml: a planned entry has no class yet; found ")
    assert text.endswith('HalveFwdOp; say status = "implemented"')


def test_an_implemented_entry_without_a_class() -> None:
    """Only for families that are installed: a user may have one wheel of many."""
    missing = load_text(
        ENTRY.replace("HalveFwdOp", "ThirdFwdOp").replace('family = "test"', 'family = "norm"'),
        path=Path("third_fwd.toml"),
    )
    pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    assert [str(fault) for fault in conformance.check([missing])] == [
        "third_fwd.toml: an implemented entry has its class in the family 'norm'; found no class "
        'named ThirdFwdOp; define it, or say status = "planned"'
    ]
    elsewhere = load_text(ENTRY.replace("HalveFwdOp", "ThirdFwdOp"), path=Path("third_fwd.toml"))
    assert conformance.check([elsewhere]) == []


def test_show_prints_the_generated_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "HalveFwdOp", "--generated"]) == 0
    assert capsys.readouterr().out == HalveFwdOp._generated_source
    compile(HalveFwdOp._generated_source, "generated", "exec")
    assert main(["show", "HalveFwdOp"]) == 0
    assert capsys.readouterr().out.startswith("HalveFwdOp  (test, implemented since 0.1.0)")


def test_show_says_which_ops_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "NoSuchOp"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tileops: no installed family has an op named 'NoSuchOp'; the ops are:")
    assert "HalveFwdOp" in error
