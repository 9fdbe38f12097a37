"""The generated boundary of an op that is declared here, in the same entry language."""

from __future__ import annotations

import inspect
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops.core import KernelInterface, Op
from tileops.core.contract import registry
from tileops.core.errors import ArgumentError, DefinitionError, KeyLookupError
from tileops.core.generate import operator_signature
from tileops.manifest import Entry, load_text

ENTRY = """
name = "ShiftFwdOp"
family = "test"
status = "planned"
since = "0.1.0"
summary = "Adds a row to every row."
formula = "y = x + row"
reference = "torch.add"

[signature.dims]
"*B" = "leading axes"
N = "columns"

[signature.dtypes]
T = ["float32", "float64"]

[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["*B", "N"]

[[signature.inputs]]
name = "row"
dtype = "T"
shape = ["N"]
optional = true

[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["*B", "N"]

[[signature.rules]]
require = "N % 2 == 0"
message = "x has {N} columns; their number must be even"
"""


def entry(text: str = ENTRY) -> Entry:
    return load_text(text, path=Path("shift_fwd.toml"))


class ShiftFwdOp(Op, entry=entry()):
    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, row: torch.Tensor | None = None) -> torch.Tensor:
        return x.contiguous().clone() if row is None else (x + row).contiguous()


def test_the_class_gets_its_boundary_from_the_entry() -> None:
    assert ShiftFwdOp.compile_op_names == ("tileops::test_shift_fwd",)
    schema = operator_signature(ShiftFwdOp.entry, ShiftFwdOp.entry.branches[0])
    assert schema == "(Tensor x, Tensor? row, str key) -> Tensor"
    assert str(torch.ops.tileops.test_shift_fwd.default._schema) == (
        f"tileops::test_shift_fwd{schema}"
    )


def test_forward_s_parameters_are_the_call_s() -> None:
    for function in (ShiftFwdOp.__call__, ShiftFwdOp._call_boundary):
        assert str(inspect.signature(function)) == "(self, x, row=None)"
    with pytest.raises(TypeError, match=r"ShiftFwdOp.__call__\(\) missing 1 required"):
        ShiftFwdOp()()


def test_defining_the_class_again_keeps_the_operator() -> None:
    again = type("ShiftFwdOp", (Op,), {"forward": ShiftFwdOp.forward}, entry=entry())
    assert again.compile_op_names == ShiftFwdOp.compile_op_names
    x = torch.randn(3, 4)
    torch.testing.assert_close(again()(x), x)
    torch.testing.assert_close(ShiftFwdOp()(x), x)


def test_another_schema_under_the_operator_s_name_is_refused() -> None:
    changed = entry(ENTRY.replace("optional = true", "optional = false"))
    with pytest.raises(DefinitionError) as error:
        type("ShiftFwdOp", (Op,), {"__module__": "elsewhere"}, entry=changed)
    assert (
        "elsewhere.ShiftFwdOp: the operator tileops::test_shift_fwd is already registered by"
        in (str(error.value))
    )


def test_a_class_without_an_entry_says_so() -> None:
    with pytest.raises(DefinitionError, match="NoSuchFwdOp is an op and needs a manifest entry"):
        type("NoSuchFwdOp", (Op,), {})
    assert type("Base", (Op,), {}, abstract=True).compile_op_names == ()


def test_a_traceback_shows_the_generated_lines() -> None:
    try:
        ShiftFwdOp()(torch.randn(2, 4), torch.randn(3))
    except ArgumentError as error:
        text = "".join(traceback.format_exception(error))
    assert "_match(_OP, 'row'" in text


def test_a_rule_holds_eager_compiled_and_with_unknown_sizes() -> None:
    text = "ShiftFwdOp: x has 3 columns; their number must be even"
    op = ShiftFwdOp()
    with pytest.raises(ArgumentError) as error:
        op(torch.randn(2, 3))
    assert str(error.value) == text
    torch._dynamo.reset()
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True, dynamic=True)
    with pytest.raises(Exception, match=r"x has .* columns; their number must be even"):
        compiled(torch.randn(2, 3))
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), x)


def test_a_key_of_an_op_that_nobody_imported() -> None:
    operator = torch.ops.tileops.test_shift_fwd
    with pytest.raises(KeyLookupError) as error:
        operator(torch.randn(2, 4), None, "GoneOp@123()#0")
    assert str(error.value) == (
        "GoneOp: no op of this name is imported in this process; import the family that holds it "
        "before running a program that was compiled or exported elsewhere"
    )
    with pytest.raises(KeyLookupError, match="made for another version of the op"):
        operator(torch.randn(2, 4), None, "ShiftFwdOp@123()#0")


def test_a_key_that_nobody_holds_is_made_again_from_what_it_says() -> None:
    operator = torch.ops.tileops.test_shift_fwd
    x = torch.randn(2, 4)
    key = f"{ShiftFwdOp._identity}()#4711"
    torch.testing.assert_close(operator(x, torch.ones(4), key), x + 1)


def test_an_op_without_a_case_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry's test can fail: an op of an installed family that registers nothing."""

    class Family:
        value = __name__

    monkeypatch.setattr(registry, "entry_points", lambda *, group: [Family()])
    assert "ShiftFwdOp" in registry.ops_without_case()


def test_importing_core_loads_no_tilelang_and_no_dynamo_and_touches_no_device() -> None:
    """Dynamo takes as long to import as torch; a decorator of it used to bring it in."""
    code = (
        "import sys, torch, tileops.core; "
        "print(*[name in sys.modules for name in ('tilelang', 'torch._dynamo', 'sympy')], "
        "torch.cuda.is_initialized())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False"] * 4


def test_the_interface_and_the_op_say_what_is_missing() -> None:
    class Nothing(KernelInterface):
        inputs: Any = ()
        outputs: Any = ()

    with pytest.raises(NotImplementedError, match="Nothing has no reference: define reference"):
        Nothing.reference(None)
