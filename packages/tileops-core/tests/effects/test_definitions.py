"""An op class that is declared in a way that cannot work says so, and says how it could."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tileops.core import Op, instances
from tileops.core.errors import DefinitionError
from tileops.manifest import Entry

from .declare import entry, inp, outp, param


def scale(name: str, *params: str) -> Entry:
    return entry(name, *params, inp("x", "*B"), outp("y", "*B"), dims="*B")


@pytest.mark.parametrize(
    "name", ["shared", "roofline", "kernel_for", "interfaces", "entry", "serving_target"]
)
def test_a_param_named_as_something_that_every_op_has(name: str) -> None:
    """It hid the method or the kernels of the class, and failed at a call in other words."""
    with pytest.raises(DefinitionError) as error:

        class HidesFwdOp(Op, entry=scale("HidesFwdOp", param(name, "int"))):
            pass

    assert str(error.value) == (
        f"{__name__}.test_a_param_named_as_something_that_every_op_has.<locals>.HidesFwdOp: the "
        f"param {name!r} would hide what every op has under this name; rename it in the entry"
    )


@pytest.mark.parametrize("name", ["__call__", "_call_boundary", "_infer"])
def test_a_class_that_defines_what_is_generated(name: str) -> None:
    """It was replaced in silence."""
    with pytest.raises(DefinitionError) as error:
        type("CallsFwdOp", (Op,), {name: lambda self, x: x}, entry=scale("CallsFwdOp"))
    assert str(error.value) == (
        f"{__name__}.CallsFwdOp defines {name}, which is generated from the entry; define forward "
        f"instead"
    )


def test_a_decorator_may_make_the_class_a_second_time() -> None:
    declared = scale("TwiceMadeFwdOp")

    class TwiceMadeFwdOp(Op, entry=declared):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    again = type("TwiceMadeFwdOp", (Op,), dict(TwiceMadeFwdOp.__dict__), entry=declared)
    x = torch.randn(3)
    for cls in (TwiceMadeFwdOp, again):
        torch.testing.assert_close(cls()(x), x * 2)


def test_a_class_without_an_entry_is_not_built() -> None:
    class FamilyOp(Op, abstract=True):
        pass

    for cls in (Op, FamilyOp):
        with pytest.raises(DefinitionError) as error:
            cls()
        assert str(error.value) == (
            f"{cls.__name__} is a base class of ops and has no entry; build an op below it"
        )


class ForgetsFwdOp(Op, entry=scale("ForgetsFwdOp", param("eps", "float"))):
    def __init__(self, eps: float, *, target: str | None = None) -> None:
        super().__init__(target=target)
        self.eps = eps


def test_a_constructor_that_stores_a_param_too_late() -> None:
    with pytest.raises(DefinitionError) as error:
        ForgetsFwdOp(1.0)
    assert str(error.value) == (
        "ForgetsFwdOp: the constructor must store the param 'eps' as self.eps before it calls "
        "super().__init__"
    )


def test_an_op_that_is_not_built_yet_can_be_shown() -> None:
    """As a debugger does, and pytest where a constructor fails."""
    assert repr(ForgetsFwdOp.__new__(ForgetsFwdOp)) == "<ForgetsFwdOp that is not built yet>"


class RenamesFwdOp(Op, entry=scale("RenamesFwdOp", param("eps", "float"))):
    def __init__(self, epsilon: float, *, target: str | None = None) -> None:
        self.eps = epsilon
        super().__init__(target=target)


class AimlessFwdOp(Op, entry=scale("AimlessFwdOp")):
    def __init__(self) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: RenamesFwdOp.shared(1.0), "eps"),
        (lambda: copy.deepcopy(RenamesFwdOp(1.0)), "eps"),
        (lambda: AimlessFwdOp.shared(), "target"),
        (lambda: copy.copy(AimlessFwdOp()), "target"),
    ],
)
def test_a_constructor_that_takes_other_names(make: Callable[[], Any], name: str) -> None:
    with pytest.raises(DefinitionError) as error:
        make()
    op = "RenamesFwdOp" if name == "eps" else "AimlessFwdOp"
    assert str(error.value) == (
        f"{op}: the constructor must take {name!r} under this name, so that the op can be shared, "
        f"copied and found again by its key"
    )


def test_a_class_whose_operator_is_refused_is_found_by_no_key() -> None:
    class KeptFwdOp(Op, entry=scale("KeptFwdOp")):
        pass

    before = dict(instances._classes)
    with pytest.raises(DefinitionError, match="is already registered"):
        type("KeptFwdOp", (Op,), {}, entry=entry("KeptFwdOp", inp("z", "*B"), dims="*B"))
    assert instances._classes == before
