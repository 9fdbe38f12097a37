"""The expressions of the manifest: a small Python subset, parsed once.

An expression has names, literals, arithmetic without powers, comparisons, ``and``/``or``/``not``,
``a if c else b``, ``is None``, ``in`` with a tuple of literals, a constant index, and calls of the
functions in :data:`FUNCTIONS`. Nothing in it can loop, call other code or grow without bound, and
its size is limited, so an entry from anywhere is safe to load.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tileops.manifest import symbolic
from tileops.manifest.emit import BINARY, FUNCTIONS, Emitter, constant_index, is_logic

__all__ = ["FUNCTIONS", "Expression", "ExpressionError"]

MAX_LENGTH: Final = 1000
MAX_NODES: Final = 250
MAX_DEPTH: Final = 30
MAX_INT: Final = 2**63 - 1

_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_GLUED: Final = re.compile(
    r"(?<![\w.])(?:0[xobXOB][0-9a-fA-F_]+?|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9_]+)?)"
    r"(?:and|else|for|if|in|is|not|or)\b"
)
_FUNCTIONS: Final = "the functions are " + ", ".join(FUNCTIONS)
_OPERATORS: Final = "the operators are + - * / // %"
_LANGUAGE: Final = (
    "an expression has names, numbers, strings, arithmetic, comparisons, and/or/not, "
    "`a if c else b`, `is None`, `in (…)`, a constant index and calls of known functions"
)


class ExpressionError(Exception):
    """An expression that is not of the language; ``remedy`` says what would be."""

    def __init__(self, message: str, remedy: str = _LANGUAGE) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(message, remedy)

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}"


class Expression:
    """A parsed expression. Two of one source are equal.

    :raises ExpressionError: the source is no expression of the language.
    """

    __slots__ = ("_function", "_tree", "names", "source")

    source: str
    names: frozenset[str]

    def __init__(self, source: str) -> None:
        self.source = source
        self._tree, self.names = _parse(source)
        self._function: tuple[tuple[str, ...], Callable[..., Any]] | None = None

    @property
    def tree(self) -> ast.expr:
        """The checked syntax tree; not to be changed."""
        return self._tree

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the expression's value where its names have these values.

        :raises KeyError: a name has no value.
        """
        if self._function is None:
            order = tuple(sorted(self.names))
            code = f"lambda {', '.join(order)}: {self.to_python(lambda name: name)}"
            self._function = (order, eval(code, dict(symbolic.HELPERS)))
        order, function = self._function
        return function(*[values[name] for name in order])

    def to_python(self, rename: Callable[[str], str], *, symbolic: bool = True) -> str:
        """Return Python source of the expression, every name replaced by ``rename(name)``.

        The source needs :data:`tileops.manifest.symbolic.HELPERS` as globals. With
        ``symbolic=False`` logic is Python's own, which is quicker, and right where no value can be
        symbolic: conditions over params and the presence of inputs.
        """
        return Emitter(rename, symbolic).emit(self._tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"

    def __str__(self) -> str:
        return self.source

    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return Expression, (self.source,)


@functools.lru_cache(maxsize=4096)
def _parse(source: str) -> tuple[ast.expr, frozenset[str]]:
    """Return the checked tree and its free names; entries say the same things again and again."""
    if len(source) > MAX_LENGTH:
        raise ExpressionError(
            f"the expression has {len(source)} characters", f"at most {MAX_LENGTH} are allowed"
        )
    if "\\" in source:
        raise ExpressionError("the expression has a backslash", "strings need no escapes here")
    if _GLUED.search(_QUOTED.sub('""', source)):
        # Python still reads it, and prints a warning.
        raise ExpressionError("a number runs into a word", "put a space between the two")
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"not an expression: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"not an expression: {error or type(error).__name__}") from None
    budget = [MAX_NODES]
    _check(tree, MAX_DEPTH, budget)
    return tree, frozenset(_names(tree))


def _check(node: ast.expr, depth: int, budget: list[int]) -> None:
    """Refuse whatever the language does not have."""
    budget[0] -= 1
    if depth <= 0:
        raise ExpressionError(
            f"the expression is nested deeper than {MAX_DEPTH}", "split it into several rules"
        )
    if budget[0] < 0:
        raise ExpressionError(
            f"the expression has more than {MAX_NODES} parts", "split it into several rules"
        )
    for child in _children(node):
        _check(child, depth - 1, budget)


def _children(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Name):
        if node.id.startswith("_") or node.id in FUNCTIONS:
            raise ExpressionError(
                f"{node.id!r} cannot be a name here",
                "a name starts with a letter and is no function",
            )
    elif isinstance(node, ast.Constant):
        _check_constant(node.value)
    elif isinstance(node, ast.BinOp):
        if type(node.op) not in BINARY:
            raise ExpressionError(f"the operator {_spelled(node.op)} is not allowed", _OPERATORS)
        for side in (node.left, node.right):
            if isinstance(side, ast.Constant) and not isinstance(side.value, (int, float)):
                raise ExpressionError(
                    f"{side.value!r} cannot be calculated with", "calculate with numbers"
                )
        yield from (node.left, node.right)
    elif isinstance(node, ast.UnaryOp):
        if not isinstance(node.op, (ast.Not, ast.USub, ast.UAdd)):
            raise ExpressionError(f"the operator {_spelled(node.op)} is not allowed", _OPERATORS)
        yield node.operand
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.IfExp):
        yield from (node.test, node.body, node.orelse)
    elif isinstance(node, ast.Compare):
        yield from _comparison_children(node)
    elif isinstance(node, ast.Subscript):
        if not isinstance(node.value, ast.Name) or constant_index(node.slice) is None:
            raise ExpressionError(
                f"{ast.unparse(node)!r} is not a name with a constant index",
                "write it as normalized_shape[0]",
            )
        yield node.value
    elif isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            raise ExpressionError("only a function can be called, by its name", _FUNCTIONS)
        if node.func.id not in FUNCTIONS:
            raise ExpressionError(f"the call of {node.func.id!r} is not allowed", _FUNCTIONS)
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise ExpressionError(
                f"{node.func.id}() takes its arguments by place", "leave out names and stars"
            )
        yield from node.args
    else:
        raise ExpressionError(f"{_described(node)} is not allowed")


def _comparison_children(node: ast.Compare) -> Iterator[ast.expr]:
    operands = [node.left, *node.comparators]
    if len(node.ops) > 1 and any(map(is_logic, operands)):
        raise ExpressionError(
            f"{ast.unparse(node)!r} chains comparisons of bools", "compare two at a time"
        )
    for at, op in enumerate(node.ops):
        right = operands[at + 1]
        if isinstance(op, (ast.Is, ast.IsNot)):
            none = isinstance(right, ast.Constant) and right.value is None
            if not none or len(node.ops) != 1 or not isinstance(node.left, ast.Name):
                raise ExpressionError(
                    f"{ast.unparse(node)!r}: `is` only asks whether a name is None",
                    "compare values with ==",
                )
        elif isinstance(op, (ast.In, ast.NotIn)):
            if len(node.ops) != 1 or not isinstance(right, ast.Tuple) or not right.elts:
                raise ExpressionError(
                    f"{ast.unparse(node)!r}: `in` takes a tuple of literals",
                    'write it as x in ("a", "b")',
                )
            for member in right.elts:
                if not isinstance(member, ast.Constant):
                    raise ExpressionError(
                        f"{ast.unparse(member)!r} in a tuple is no literal",
                        "list numbers or strings",
                    )
    for operand in operands:
        yield from operand.elts if isinstance(operand, ast.Tuple) else (operand,)


def _check_constant(value: object) -> None:
    if value is None or isinstance(value, (bool, str)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError("the number is infinite", "write one that a float holds")
        return
    if not isinstance(value, int):
        raise ExpressionError(f"the literal {value!r} is not allowed")
    if value > MAX_INT:
        raise ExpressionError("the number does not fit in 64 bits", f"write at most {MAX_INT}")


def _names(node: ast.expr) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id not in FUNCTIONS:
            yield child.id


def _spelled(op: ast.AST) -> str:
    known = {ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@", ast.Invert: "~"}
    return known.get(type(op), type(op).__name__)


def _described(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"the attribute {ast.unparse(node)!r}"
    return f"{ast.unparse(node)!r} ({type(node).__name__})"
