"""The static types of expressions, so that a wrong one is found when its entry is validated.

A name that may be None must be known not to be before it is calculated with: by ``is None`` or
``is not None`` to its left in ``and``/``or``, or in the test of a conditional. A dim that only an
optional input binds is known where that input is.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tileops.manifest.expressions import Expression, ExpressionError

__all__ = ["BOOL", "FLOAT", "INT", "INTS", "PRESENCE", "STR", "TENSOR", "Type", "implied", "infer"]


@dataclasses.dataclass(frozen=True)
class Type:
    """What a value is.

    ``guards`` are the optional inputs of which any one's presence makes an optional value known;
    ``choices`` the strings that a value can be, where they are listed.
    """

    kind: str
    optional: bool = False
    guards: frozenset[str] = frozenset()
    choices: tuple[Any, ...] | None = None

    def __str__(self) -> str:
        return f"{_TITLES[self.kind]} or None" if self.optional else _TITLES[self.kind]


_TITLES: Final = {
    "int": "an int",
    "float": "a float",
    "bool": "a bool",
    "str": "a string",
    "ints": "a tuple of ints",
    "floats": "a tuple of floats",
    "presence": "a tensor",
    "tensor": "a tensor",
    "none": "None",
}

INT: Final = Type("int")
FLOAT: Final = Type("float")
BOOL: Final = Type("bool")
STR: Final = Type("str")
INTS: Final = Type("ints")
FLOATS: Final = Type("floats")
NONE: Final = Type("none")
PRESENCE: Final = Type("presence")
"""A tensor of which an expression may only ask whether it is there."""
TENSOR: Final = Type("tensor")
"""A tensor of which a roofline may read the size and, where it is generated, the values."""

_NUMBERS: Final = ("int", "float")


def infer(expression: Expression, names: Mapping[str, Type]) -> Type:
    """Return the type of an expression.

    :raises ExpressionError: a name is not known here, or an operation does not fit its operands.
    """
    return _Checker(names).infer(expression.tree, frozenset())


def implied(condition: Expression) -> frozenset[str]:
    """Return the names that are not None where a condition holds."""
    return _implied(condition.tree, True)


class _Checker:
    def __init__(self, names: Mapping[str, Type]) -> None:
        self.names = names

    def infer(self, node: ast.expr, known: frozenset[str]) -> Type:
        method: Callable[[Any, frozenset[str]], Type] = getattr(self, f"_{type(node).__name__}")
        return method(node, known)

    def present(self, node: ast.expr, known: frozenset[str]) -> Type:
        """Infer a type that cannot be None."""
        found = self.infer(node, known)
        if found.optional or found.kind == "none":
            text = ast.unparse(node)
            guard = " or ".join(sorted(found.guards)) if found.guards else text
            raise ExpressionError(
                f"{text!r} may be None here", f"ask for `{guard} is not None` to its left"
            )
        return found

    def number(self, node: ast.expr, known: frozenset[str], what: str) -> Type:
        found = self.present(node, known)
        if found.kind not in _NUMBERS:
            raise _mismatch(what, "numbers", node, found)
        return found

    def boolean(self, node: ast.expr, known: frozenset[str], what: str) -> None:
        found = self.present(node, known)
        if found.kind != "bool":
            raise _mismatch(what, "bools", node, found)

    def _Name(self, node: ast.Name, known: frozenset[str]) -> Type:
        found = self.names.get(node.id)
        if found is None:
            raise ExpressionError(f"{node.id!r} is not known here", _suggest(node.id, self.names))
        if found.optional and (node.id in known or found.guards & known):
            return dataclasses.replace(found, optional=False)
        return found

    def _Constant(self, node: ast.Constant, known: frozenset[str]) -> Type:
        if node.value is None:
            return NONE
        return Type(type(node.value).__name__)

    def _Subscript(self, node: ast.Subscript, known: frozenset[str]) -> Type:
        found = self.present(node.value, known)
        if found.kind not in ("ints", "floats"):
            raise _mismatch("an index", "tuples", node.value, found)
        return INT if found.kind == "ints" else FLOAT

    def _BinOp(self, node: ast.BinOp, known: frozenset[str]) -> Type:
        sign = {ast.FloorDiv: "//", ast.Mod: "%", ast.Div: "/"}.get(type(node.op), "arithmetic")
        left = self.number(node.left, known, sign)
        right = self.number(node.right, known, sign)
        if isinstance(node.op, ast.Div):
            return FLOAT
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            for side, found in ((node.left, left), (node.right, right)):
                if found.kind != "int":
                    raise _mismatch(sign, "ints", side, found)
        return _wider(left, right)

    def _UnaryOp(self, node: ast.UnaryOp, known: frozenset[str]) -> Type:
        if isinstance(node.op, ast.Not):
            self.boolean(node.operand, known, "`not`")
            return BOOL
        return self.number(node.operand, known, "a sign")

    def _BoolOp(self, node: ast.BoolOp, known: frozenset[str]) -> Type:
        word = "and" if isinstance(node.op, ast.And) else "or"
        for value in node.values:
            self.boolean(value, known, f"`{word}`")
            known |= _implied(value, word == "and")
        return BOOL

    def _IfExp(self, node: ast.IfExp, known: frozenset[str]) -> Type:
        self.boolean(node.test, known, "`if`")
        yes = self.infer(node.body, known | _implied(node.test, True))
        no = self.infer(node.orelse, known | _implied(node.test, False))
        if yes.kind == "none" or no.kind == "none":
            return dataclasses.replace(no if yes.kind == "none" else yes, optional=True)
        if yes.kind in _NUMBERS and no.kind in _NUMBERS:
            return dataclasses.replace(_wider(yes, no), optional=yes.optional or no.optional)
        if yes.kind != no.kind:
            raise ExpressionError(
                f"{ast.unparse(node)!r} is {yes} or {no}", "give both sides one type"
            )
        return dataclasses.replace(yes, optional=yes.optional or no.optional)

    def _Compare(self, node: ast.Compare, known: frozenset[str]) -> Type:
        operands = [node.left, *node.comparators]
        for at, op in enumerate(node.ops):
            left, right = operands[at], operands[at + 1]
            if isinstance(op, (ast.Is, ast.IsNot)):
                self.infer(left, known)
            elif isinstance(op, (ast.In, ast.NotIn)):
                assert isinstance(right, ast.Tuple)
                for member in right.elts:
                    self.comparable(left, member, known)
            elif isinstance(op, (ast.Eq, ast.NotEq)):
                self.comparable(left, right, known)
            else:
                for side in (left, right):
                    self.number(side, known, "an ordering")
        return BOOL

    def comparable(self, left: ast.expr, right: ast.expr, known: frozenset[str]) -> None:
        one, two = self.infer(left, known), self.infer(right, known)
        if "presence" in (one.kind, two.kind) or "tensor" in (one.kind, two.kind):
            raise ExpressionError(
                f"{ast.unparse(left)!r} and {ast.unparse(right)!r} are not comparable",
                "of a tensor ask only whether it `is None`",
            )
        numbers = one.kind in _NUMBERS and two.kind in _NUMBERS
        if not numbers and one.kind != two.kind:
            raise ExpressionError(
                f"{ast.unparse(left)!r} is {one} and {ast.unparse(right)!r} is {two}",
                "compare values of one type",
            )
        for found, other in ((one, right), (two, left)):
            if found.choices is None or not isinstance(other, ast.Constant):
                continue
            if other.value not in found.choices:
                choices = ", ".join(map(repr, found.choices))
                raise ExpressionError(
                    f"{other.value!r} is none of the choices", f"the choices are {choices}"
                )

    def _Call(self, node: ast.Call, known: frozenset[str]) -> Type:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name in ("min", "max"):
            if len(node.args) < 2:
                raise ExpressionError(
                    f"{name}() takes two numbers or more", "write it as min(a, b)"
                )
            found = [self.number(argument, known, f"{name}()") for argument in node.args]
            return FLOAT if any(one.kind == "float" for one in found) else INT
        signature, result = _CALLS[name]
        least = sum(not title.endswith("?") for title in signature)
        if not least <= len(node.args) <= len(signature):
            listed = ", ".join(signature)
            raise ExpressionError(
                f"{name}() got {len(node.args)} arguments", f"it is {name}({listed})"
            )
        first = self.arguments(name, signature, node.args, known)
        return first if result is None else result

    def arguments(
        self, name: str, signature: Sequence[str], given: Sequence[ast.expr], known: frozenset[str]
    ) -> Type:
        """Check a call's arguments, and return the type of the first, as a scalar."""
        found: list[Type] = []
        for title, argument in zip(signature, given, strict=False):
            accepted = title.rstrip("?").split("|")
            takes_none = "None" in accepted
            one = self.infer(argument, known) if takes_none else self.present(argument, known)
            if one.kind not in accepted and not (takes_none and one.kind == "none"):
                wanted = " or ".join(_TITLES[kind] for kind in accepted if kind != "None")
                raise _mismatch(f"{name}()", wanted, argument, one)
            found.append(one)
        return {"ints": INT, "floats": FLOAT}.get(found[0].kind, found[0])


_CALLS: Final[Mapping[str, tuple[tuple[str, ...], Type | None]]] = {
    "abs": (("int|float",), None),
    "prod": (("ints",), INT),
    "len": (("ints|floats",), INT),
    "sum": (("ints|floats",), None),
    "ceil_div": (("int", "int"), INT),
    "itemsize": (("str",), INT),
    "nbytes": (("tensor|None",), INT),
    "values": (("tensor",), INTS),
    "lengths": (("tensor",), INTS),
    "pages": (("ints", "int"), INT),
    "pairs": (("int|ints", "int|ints", "bool?", "int|None?", "int|None?"), INT),
}
"""What each function takes (``?``: may be left out) and gives (None: the first's type)."""


def _implied(node: ast.expr, truth: bool) -> frozenset[str]:
    """Return the names that are not None where ``node`` has this truth."""
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
        absent = isinstance(node.ops[0], ast.Is)
        if absent or isinstance(node.ops[0], ast.IsNot):
            return frozenset({node.left.id}) if absent != truth else frozenset()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _implied(node.operand, not truth)
    if isinstance(node, ast.BoolOp):
        sets = [_implied(value, truth) for value in node.values]
        if isinstance(node.op, ast.And) == truth:
            return frozenset().union(*sets)
        return frozenset.intersection(*sets)
    return frozenset()


def _wider(left: Type, right: Type) -> Type:
    return FLOAT if "float" in (left.kind, right.kind) else INT


def _mismatch(what: str, wanted: str, node: ast.expr, found: Type) -> ExpressionError:
    return ExpressionError(
        f"{what} takes {wanted}, and {ast.unparse(node)!r} is {found}", f"give it {wanted}"
    )


def _suggest(name: str, names: Mapping[str, Type]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "the names here are " + (", ".join(sorted(names)) or "none") + "; declare others"
