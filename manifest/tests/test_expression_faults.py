"""Expressions that are not of the language or have no type, as the validator tells them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

CASES = {
    "a call that is not allowed": (
        [
            ('require = "N > 0"', 'require = "open(N)"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the call of 'open' is not "
            "allowed; found 'open(N)'; the functions are min, max, abs, prod, len, sum, "
            "ceil_div, itemsize, nbytes, values, lengths, pages, pairs",
        ],
    ),
    "a call of a call's result": (
        [
            ('require = "N > 0"', 'require = "(lambda: N)() > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: only a function can be "
            "called, by its name; found '(lambda: N)() > 0'; the functions are min, max, "
            "abs, prod, len, sum, ceil_div, itemsize, nbytes, values, lengths, pages, pairs",
        ],
    ),
    "a call by keyword": (
        [
            ('require = "N > 0"', 'require = "min(a=N) > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: min() takes its arguments "
            "by place; found 'min(a=N) > 0'; leave out names and stars",
        ],
    ),
    "an attribute": (
        [
            ('require = "N > 0"', 'require = "x.shape > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the attribute 'x.shape' "
            "is not allowed; found 'x.shape > 0'; an expression has names, numbers, "
            "strings, arithmetic, comparisons, and/or/not, `a if c else b`, `is None`, `in "
            "(…)`, a constant index and calls of known functions",
        ],
    ),
    "a number that runs into a word": (
        [
            ('require = "N > 0"', 'require = "N > 0or N > 0x1or N < 1.5if True else x is None"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: a number runs into a word; found "
            "'N > 0or N > 0x1or N < 1.5if True else x is None'; put a space between the two",
        ],
    ),
    "a power, which could be huge": (
        [
            ('require = "N > 0"', 'require = "2 ** 2 ** N > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the operator ** is not "
            "allowed; found '2 ** 2 ** N > 0'; the operators are + - * / // %",
        ],
    ),
    "a shift, which could be huge": (
        [
            ('require = "N > 0"', 'require = "1 << N > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the operator << is not "
            "allowed; found '1 << N > 0'; the operators are + - * / // %",
        ],
    ),
    "a comprehension, which might not end": (
        [
            ('require = "N > 0"', 'require = "[i for i in B] == B"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: '[i for i in B]' "
            "(ListComp) is not allowed; found '[i for i in B] == B'; an expression has "
            "names, numbers, strings, arithmetic, comparisons, and/or/not, `a if c else "
            "b`, `is None`, `in (…)`, a constant index and calls of known functions",
        ],
    ),
    "a walrus": (
        [
            ('require = "N > 0"', 'require = "(M := N) > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: '(M := N)' (NamedExpr) is "
            "not allowed; found '(M := N) > 0'; an expression has names, numbers, strings, "
            "arithmetic, comparisons, and/or/not, `a if c else b`, `is None`, `in (…)`, a "
            "constant index and calls of known functions",
        ],
    ),
    "too deep": (
        [
            ('require = "N > 0"', 'require = "' + "+ " * 40 + 'N > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the expression is nested "
            "deeper than 30; found '+ + + + + + + + + + + + + + + + + + + + + + + + + + + "
            "+ + + + + + ...'; split it into several rules",
        ],
    ),
    "too many parts": (
        [
            ('require = "N > 0"', 'require = "max(' + ", ".join(["N + 1"] * 90) + ') > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the expression has more "
            "than 250 parts; found 'max(N + 1, N + 1, N + 1, N + 1, N + 1, N + 1, N + 1, N "
            "+ 1, N + 1 ...'; split it into several rules",
        ],
    ),
    "too long": (
        [
            ('require = "N > 0"', 'require = "' + "N + " * 300 + 'N > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the expression has 1205 "
            "characters; found 'N + N + N + N + N + N + N + N + N + N + N + N + N + N + N "
            "+ N + N ...'; at most 1000 are allowed",
        ],
    ),
    "a number of more than 64 bits": (
        [
            ('require = "N > 0"', 'require = "N > 99999999999999999999"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the number does not fit "
            "in 64 bits; found 'N > 99999999999999999999'; write at most "
            "9223372036854775807",
        ],
    ),
    "a number that no float holds": (
        [
            ('require = "N > 0"', 'require = "N < 1e999"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: the number is infinite; "
            "found 'N < 1e999'; write one that a float holds",
        ],
    ),
    "a text that would be repeated": (
        [
            ('require = "N > 0"', "require = \"'a' * N == 'b'\""),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'a' cannot be calculated "
            "with; found \"'a' * N == 'b'\"; calculate with numbers",
        ],
    ),
    "an index that is not constant": (
        [
            ('require = "N > 0"', 'require = "B[N] > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'B[N]' is not a name with "
            "a constant index; found 'B[N] > 0'; write it as normalized_shape[0]",
        ],
    ),
    "`is` with a value": (
        [
            ('require = "N > 0"', 'require = "N is 1"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'N is 1': `is` only asks "
            "whether a name is None; found 'N is 1'; compare values with ==",
        ],
    ),
    "`in` with a name": (
        [
            ('require = "N > 0"', 'require = "N in B"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'N in B': `in` takes a "
            'tuple of literals; found \'N in B\'; write it as x in ("a", "b")',
        ],
    ),
    "`in` with an expression": (
        [
            ('require = "N > 0"', 'require = "N in (1, 1 + 1)"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: '1 + 1' in a tuple is no "
            "literal; found 'N in (1, 1 + 1)'; list numbers or strings",
        ],
    ),
    "a name with an underscore first": (
        [
            ('require = "N > 0"', 'require = "__import__ > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: '__import__' cannot be a "
            "name here; found '__import__ > 0'; a name starts with a letter and is no "
            "function",
        ],
    ),
    "no expression": (
        [
            ('require = "N > 0"', 'require = "N >"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: not an expression: "
            "invalid syntax; found 'N >'; an expression has names, numbers, strings, "
            "arithmetic, comparisons, and/or/not, `a if c else b`, `is None`, `in (…)`, a "
            "constant index and calls of known functions",
        ],
    ),
    "a statement": (
        [
            ('require = "N > 0"', 'require = "import os"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: not an expression: "
            "invalid syntax; found 'import os'; an expression has names, numbers, strings, "
            "arithmetic, comparisons, and/or/not, `a if c else b`, `is None`, `in (…)`, a "
            "constant index and calls of known functions",
        ],
    ),
    "a name that is not bound": (
        [
            ('require = "N > 0"', 'require = "M > 0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'M' is not known here; "
            "found 'M > 0'; the names here are B, N, eps, weight, x; declare others",
        ],
    ),
    "a number where a condition is wanted": (
        [
            ('require = "N > 0"', 'require = "N + 1"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require is a condition; found 'N + "
            "1', an int; write a condition",
        ],
    ),
    "logic over numbers": (
        [
            ('require = "N > 0"', 'require = "N and 1"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: `and` takes bools, and "
            "'N' is an int; found 'N and 1'; give it bools",
        ],
    ),
    "arithmetic over a text": (
        [
            ('require = "N > 0"', "require = \"N + 'a' > 0\""),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'a' cannot be calculated "
            "with; found \"N + 'a' > 0\"; calculate with numbers",
        ],
    ),
    "an order of texts": (
        [
            ('require = "N > 0"', "require = \"'a' < 'b'\""),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: an ordering takes "
            "numbers, and \"'a'\" is a string; found \"'a' < 'b'\"; give it numbers",
        ],
    ),
    "a value that may be None": (
        [
            ('require = "N > 0"', 'require = "eps > 0.0"'),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'eps' may be None here; "
            "found 'eps > 0.0'; ask for `eps is not None` to its left",
        ],
    ),
    "a comparison of a text and a number": (
        [
            ('require = "N > 0"', "require = \"N == 'a'\""),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: 'N' is an int and "
            "\"'a'\" is a string; found \"N == 'a'\"; compare values of one type",
        ],
    ),
    "two types in one conditional": (
        [
            ('require = "N > 0"', "require = \"(1 if N > 1 else 'a') == 1\""),
        ],
        [
            "norm/scale_fwd.toml:38: signature.rules[0].require: \"1 if N > 1 else 'a'\" "
            "is an int or a string; found \"(1 if N > 1 else 'a') == 1\"; give both sides "
            "one type",
        ],
    ),
    "a function over the wrong type": (
        [
            ('flops = "prod(B) * N"', 'flops = "prod(N)"'),
        ],
        [
            "norm/scale_fwd.toml:51: roofline.flops: prod() takes a tuple of ints, and 'N' "
            "is an int; found 'prod(N)'; give it a tuple of ints",
        ],
    ),
    "a function with too many arguments": (
        [
            ('flops = "prod(B) * N"', 'flops = "prod(B, B)"'),
        ],
        [
            "norm/scale_fwd.toml:51: roofline.flops: prod() got 2 arguments; found "
            "'prod(B, B)'; it is prod(ints)",
        ],
    ),
    "a roofline of another name": (
        [
            ('flops = "prod(B) * N"', 'flops = "prod(B) * n"'),
        ],
        [
            "norm/scale_fwd.toml:51: roofline.flops: 'n' is not known here; found 'prod(B) "
            "* n'; the names here are B, N, T, eps, weight, x, y; declare others",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_expression_is_refused(name: str, faults_of: Callable[..., list[str]]) -> None:
    changes, expected = CASES[name]
    assert faults_of(*changes) == expected
