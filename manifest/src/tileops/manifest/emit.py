"""Writing a checked expression as Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["BINARY", "FUNCTIONS", "Emitter", "constant_index", "is_logic"]

FUNCTIONS: Final[Mapping[str, str]] = {
    "min": "_min",
    "max": "_max",
    "abs": "_abs",
    "prod": "_prod",
    "len": "_len",
    "sum": "_sum",
    "ceil_div": "_ceil_div",
    "itemsize": "_itemsize",
    "nbytes": "_nbytes",
    "values": "_values",
    "lengths": "_lengths",
    "pages": "_pages",
    "pairs": "_pairs",
}
"""The functions that an expression may call, and the helper that each compiles to."""
BINARY: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Div: "/",
}
_TOTAL: Final[Mapping[str, str]] = {"//": "_floordiv", "%": "_mod", "/": "_truediv"}
_COMPARISON: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


class Emitter:
    """Writes a checked tree as Python, every name replaced by ``rename(name)``.

    With ``symbolic`` logic is written as calls of :mod:`tileops.manifest.symbolic`, else as
    Python's own.
    """

    def __init__(self, rename: Callable[[str], str], symbolic: bool) -> None:
        self.rename = rename
        self.symbolic = symbolic
        self.temporaries = 0

    def emit(self, node: ast.expr) -> str:
        method: Callable[[Any], str] = getattr(self, f"_{type(node).__name__.lower()}")
        return method(node)

    def _name(self, node: ast.Name) -> str:
        return self.rename(node.id)

    def _constant(self, node: ast.Constant) -> str:
        return repr(node.value)

    def _subscript(self, node: ast.Subscript) -> str:
        return f"{self.emit(node.value)}[{constant_index(node.slice)}]"

    def _call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name)
        return f"{FUNCTIONS[node.func.id]}({', '.join(map(self.emit, node.args))})"

    def _binop(self, node: ast.BinOp) -> str:
        op = BINARY[type(node.op)]
        left, right = self.emit(node.left), self.emit(node.right)
        plain = isinstance(node.right, ast.Constant) and bool(node.right.value)
        if op in _TOTAL and not plain:
            return f"{_TOTAL[op]}({left}, {right})"
        return f"({left} {op} {right})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        operand = self.emit(node.operand)
        if isinstance(node.op, ast.Not):
            return f"_not({operand})" if self.symbolic else f"(not {operand})"
        return f"(-{operand})" if isinstance(node.op, ast.USub) else f"(+{operand})"

    def _boolop(self, node: ast.BoolOp) -> str:
        word = "and" if isinstance(node.op, ast.And) else "or"
        parts = [self.emit(value) for value in node.values]
        if not self.symbolic:
            return f"({f' {word} '.join(parts)})"
        text = parts[-1]
        for part in reversed(parts[:-1]):
            text = f"_{word}({part}, lambda: {text})"
        return text

    def _ifexp(self, node: ast.IfExp) -> str:
        test, body, orelse = self.emit(node.test), self.emit(node.body), self.emit(node.orelse)
        if not self.symbolic:
            return f"({body} if {test} else {orelse})"
        return f"_if({test}, lambda: {body}, lambda: {orelse})"

    def _compare(self, node: ast.Compare) -> str:
        operands = [node.left, *node.comparators]
        ops = [_COMPARISON[type(op)] for op in node.ops]
        if ops[0] in ("in", "not in"):
            assert isinstance(operands[1], ast.Tuple)
            members = "".join(f"{self.emit(member)}, " for member in operands[1].elts)
            text = f"_in({self.emit(node.left)}, ({members}))"
            return text if ops[0] == "in" else f"_not({text})"
        parts = [self.emit(operand) for operand in operands]
        if self.symbolic and ops[0] in ("==", "!=") and any(map(is_logic, operands)):
            text = f"_same({', '.join(parts)})"
            return text if ops[0] == "==" else f"_not({text})"
        if len(ops) == 1 or not self.symbolic:
            tail = "".join(f" {op} {part}" for op, part in zip(ops, parts[1:], strict=True))
            return f"({parts[0]}{tail})"
        # A middle operand belongs to two comparisons: binding it keeps it from being written twice.
        names = []
        for _ in parts:
            self.temporaries += 1
            names.append(f"_t{self.temporaries}")
        pairs = [f"({a} {op} {b})" for a, op, b in zip(names[:-1], ops, names[1:], strict=True)]
        text = pairs[-1]
        for pair in reversed(pairs[:-1]):
            text = f"_and({pair}, lambda: {text})"
        return f"(lambda {', '.join(names)}: {text})({', '.join(parts)})"


def is_logic(node: ast.expr) -> bool:
    """Whether an operand is a bool by its form."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    return isinstance(node, (ast.Compare, ast.BoolOp)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def constant_index(node: ast.expr) -> int | None:
    """Return the index that a subscript holds, or None where it is not a constant int."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sign * node.value
    return None
