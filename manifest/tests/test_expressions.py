"""Expressions: what they evaluate to, what Python they become, and that each stays small."""

from __future__ import annotations

import pickle

import pytest

from tileops.manifest.expressions import Expression, ExpressionError
from tileops.manifest.symbolic import HELPERS

VALUES = {"a": 7, "b": 2, "c": 0, "shape": (2, 3), "none": None, "flag": True, "mode": "silu"}

EVALUATED = [
    ("a + b * 3 - 1", 12),
    ("-a // b", -4),
    ("a % b == 1 and not flag", False),
    ("a / b", 3.5),
    ("1 < b < a", True),
    ("1 < a < b", False),
    ("a < b < 1 // c", False),
    ("a if flag else b", 7),
    ("none is None", True),
    ("none is not None and none > 3", False),
    ("none is None or none > 3", True),
    ("mode in ('silu', 'gelu')", True),
    ("mode not in ('silu',)", False),
    ("mode == 'gelu'", False),
    ("prod(shape) + sum(shape) + len(shape)", 13),
    ("shape[0] + shape[-1]", 5),
    ("min(a, b, 5) + max(a, b)", 9),
    ("abs(-a)", 7),
    ("ceil_div(a, b)", 4),
    ("(a + 1) * (b - 5) ", -24),
    ("+a", 7),
    ("(a > b) == flag", True),
    ("(a > b) != (b > a)", True),
]

DIVIDED_BY_ZERO = [("a // c", 0), ("a % c", 7), ("a / c", 0.0), ("ceil_div(a, c)", 0)]


@pytest.mark.parametrize(("source", "value"), [*EVALUATED, *DIVIDED_BY_ZERO])
@pytest.mark.parametrize("symbolic", [True, False])
def test_evaluates(source: str, value: object, symbolic: bool) -> None:
    """Division by zero has a value, so that a rule over sizes cannot die of an empty tensor."""
    expression = Expression(source)
    assert expression.evaluate(VALUES) == value
    code = expression.to_python(lambda name: f"values[{name!r}]", symbolic=symbolic)
    assert eval(code, {**HELPERS, "values": VALUES}) == value


def test_names_are_the_free_ones() -> None:
    assert Expression("min(a, b) > 0 and c is None").names == {"a", "b", "c"}


def test_renaming_reaches_every_name_and_no_helper() -> None:
    code = Expression("a is None or min(a, 2) > prod(b)").to_python(lambda name: f"self.{name}")
    assert code == "_or((self.a is None), lambda: (_min(self.a, 2) > _prod(self.b)))"


def test_plain_logic_is_pythons_own() -> None:
    """Conditions over params and presence never see a symbol, and run on every call."""
    code = Expression("a is None or (b if c else d)").to_python(str.upper, symbolic=False)
    assert code == "((A is None) or (B if C else D))"


def test_a_middle_operand_is_evaluated_once() -> None:
    code = Expression("0 < a * b < c <= d").to_python(lambda name: name)
    assert code.count("(a * b)") == 1


def test_nested_chains_do_not_grow_exponentially() -> None:
    """A chain whose middle operand were written twice would double at every level."""
    source = "a"
    for _ in range(8):
        source = f"min(0, 1 if 0 < ({source}) < 9 else 2)"
    assert len(Expression(source).to_python(lambda name: name)) < 2000


def test_equal_sources_are_equal_and_pickle() -> None:
    expression = Expression("a + 1")
    assert expression == Expression("a + 1")
    assert hash(expression) == hash(Expression("a + 1"))
    assert pickle.loads(pickle.dumps(expression)).evaluate({"a": 1}) == 2
    assert (str(expression), repr(expression)) == ("a + 1", "Expression('a + 1')")


def test_a_missing_value_is_named() -> None:
    with pytest.raises(KeyError, match=r"^'b'$"):
        Expression("a + b").evaluate({"a": 1})


@pytest.mark.parametrize(
    "source",
    ["(" * 400 + "a" + ")" * 400, "not " * 240 + "a", "a\0b", "", " ", "a; b", "1_000e999j", "..."],
)
def test_hostile_text_raises_the_typed_error(source: str) -> None:
    """Whatever Python's own parser does with a text (or dies of), one error comes out."""
    with pytest.raises(ExpressionError):
        Expression(source)


@pytest.mark.parametrize(
    ("source", "glued"),
    [
        ("1if a else 2", True),
        ("a > 0x1or a", True),
        ("a > 1e3and a", True),
        ("a > .5or a", True),
        ("a > 1 or a", False),
        ("x1if or a", False),
        ("a == '1if'", False),
    ],
)
def test_a_number_ends_before_a_word(source: str, glued: bool) -> None:
    """Python reads the two apart, with a warning on the terminal of whoever loads the entry."""
    if not glued:
        assert Expression(source).source == source
        return
    with pytest.raises(ExpressionError) as caught:
        Expression(source)
    assert str(caught.value) == "a number runs into a word; put a space between the two"
