"""What a key looks like, and that every param's value comes back from it exactly."""

from __future__ import annotations

import enum
import math
import re
from typing import Any

import pytest
import torch
from key_samples import ScaleFwdOp, TypedFwdOp

from tileops.core.errors import KeyLookupError, ParamError
from tileops.core.instances import find
from tileops.core.params import read, spell


class Mode(str, enum.Enum):
    PLAIN = "plain"


def test_the_form_of_a_key() -> None:
    op = ScaleFwdOp(4096, 0.5)
    assert re.fullmatch(
        r"ScaleFwdOp@[0-9a-f]{12}\(normalized_shape=\(4096,\), factor=0\.5\)#\d+", op._key
    )


VALUES: list[tuple[str, Any, str]] = [
    ("count", -(2**63), "-9223372036854775808"),
    ("ratio", None, "None"),
    ("ratio", 1e-05, "1e-05"),
    ("ratio", 5e-324, "5e-324"),
    ("ratio", 0.1 + 0.2, "0.30000000000000004"),
    ("ratio", -0.0, "-0.0"),
    ("ratio", math.inf, "inf"),
    ("ratio", -math.inf, "-inf"),
    ("ratio", math.nan, "nan"),
    ("ratio", -math.nan, "nan"),
    ("flag", True, "True"),
    ("text", "", "''"),
    ("text", "inf", "'inf'"),
    ("text", "(a, #0)", "'(a, #0)'"),
    ("text", 'it\'s "100%" \\ \n\0 é \ud800', "'it%27s %22100%25%22 %5C %0A%00 %C3%A9 %ED%A0%80'"),
    ("text", Mode.PLAIN, "'plain'"),
    ("mode", "negated", "'negated'"),
    ("level", 2, "2"),
    ("kind", torch.float16, "'float16'"),
    ("kind", "float16", "'float16'"),
    ("place", torch.device("cuda", 1), "'cuda:1'"),
    ("place", "meta", "'meta'"),
    ("unique", 7, "(7,)"),
    ("unique", (), "()"),
    ("unique", torch.Size([2, 3]), "(2, 3)"),
    ("steps", [-1, 2], "(-1, 2)"),
    ("weights", [1, math.inf, -math.inf], "(1.0, inf, -inf)"),
]


@pytest.mark.parametrize(("name", "value", "spelling"), VALUES)
def test_a_value_is_spelt_and_read_back(name: str, value: Any, spelling: str) -> None:
    """A key without its number is all that an exported program keeps of an op."""
    op = TypedFwdOp(**{name: value})
    assert f"{name}={spelling}" in op._description
    again = find(op._description)
    assert again is not op
    assert again._key == op._description
    # Their spellings are compared too, which tells -0.0 from 0.0 and NaN from none.
    assert repr(getattr(again, name)) == repr(getattr(op, name)).replace("-nan", "nan")
    assert spell(getattr(again, name)) == spelling
    assert type(getattr(again, name)) is type(getattr(op, name))


@pytest.mark.parametrize(("name", "value", "spelling"), VALUES)
def test_a_spelling_can_stand_between_double_quotes(name: str, value: Any, spelling: str) -> None:
    """Inductor's cpp_wrapper writes a string argument so, and escapes nothing."""
    assert spelling.isascii()
    assert not set(spelling) & set('"\\\n\0')
    assert TypedFwdOp(**{name: value})._description.isascii()


def test_what_is_no_param_has_no_spelling() -> None:
    with pytest.raises(ValueError, match=r"has no canonical spelling"):
        spell(torch.ones(1))


@pytest.mark.parametrize("text", ["1", "a=1, **b", "a=", "a=1) + f(b=2", "a=f", "a=[*b]", "a=(1,"])
def test_what_spells_no_params_is_refused(text: str) -> None:
    """A key may come from a file: it is read as literals, and never evaluated."""
    with pytest.raises(ValueError):  # noqa: PT011 -- several texts, none of them shown to users
        read(text)


TAILS = [
    "",
    "#0",
    "()#0",
    "(factor",
    "(normalized_shape=(4,), factor=two)",
    "(factor=2.0, normalized_shape=(4,))#0",
    "(normalized_shape=[4], factor=2.0)#0",
    "(normalized_shape=4, factor=2.0)#0",
    "(normalized_shape=(4,), factor=2.0)#x",
]


@pytest.mark.parametrize("tail", TAILS)
def test_a_key_that_no_op_has(tail: str) -> None:
    with pytest.raises(KeyLookupError) as error:
        find(f"{ScaleFwdOp._identity}{tail}")
    assert str(error.value) == (
        f"ScaleFwdOp: the key '{ScaleFwdOp._identity}{tail}' is none that an op has; keys are made "
        f"by tileops-core and never written by hand"
    )


def test_a_param_may_be_called_unique() -> None:
    """It used to be taken for a key whose params have no spelling."""
    op = TypedFwdOp.shared(unique=3)
    assert op is TypedFwdOp.shared(unique=[3])
    assert find(op._description).unique == (3,)


def test_a_dtype_s_choices_are_its_names() -> None:
    """Every dtype used to be refused, since the entry lists names."""
    assert TypedFwdOp(kind="float16").kind is torch.float16
    with pytest.raises(ParamError) as error:
        TypedFwdOp(kind=torch.int8)
    assert str(error.value) == (
        "TypedFwdOp: kind is torch.int8, but the signature needs one of 'float32', 'float16'"
    )


def test_rules_and_conditions_see_a_dtype_by_its_name() -> None:
    """They compare it with a string, at construction and in the generated boundary."""
    with pytest.raises(ParamError) as error:
        TypedFwdOp(100, kind=torch.float16)
    assert str(error.value) == "TypedFwdOp: count is 100 in float16; it is below 100"
    x = torch.randn(4)
    assert TypedFwdOp()(x).dtype == torch.float32
    half = TypedFwdOp(kind=torch.float16)
    torch._dynamo.reset()
    compiled = torch.compile(half, backend="aot_eager", fullgraph=True)
    for results in (half(x), half(x), compiled(x)):
        assert [y.dtype for y in results] == [torch.float16, torch.float16]
