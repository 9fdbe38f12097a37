"""The effect branches of a signature: each distinct set of what a call writes, fills and omits."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tileops.manifest.expressions import Expression
from tileops.manifest.model import Branch, Input, Output, Param, Signature
from tileops.manifest.names import operator_name

__all__ = ["EffectError", "branches"]

MAX_COMBINATIONS: Final = 4096


class EffectError(Exception):
    """A signature whose effects cannot be enumerated; ``remedy`` says how they could be."""

    def __init__(self, message: str, remedy: str) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(message, remedy)

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}"


class _Given:
    """Stands for a tensor, or for a param's value, of which only the presence matters."""

    def __repr__(self) -> str:
        return "given"


_GIVEN: Final = _Given()


def branches(family: str, snake: str, signature: Signature) -> tuple[Branch, ...]:
    """Return the branches of a signature.

    Those that make every output come first, among them those that fill no ``out``, among them
    those that write least.

    :raises EffectError: a condition reads what has no enumerable values, or there are too many.
    """
    base = operator_name(family, snake)
    effects = {_effect(signature, facts, out) for facts, out in _combinations(signature)}
    if not effects:
        raise EffectError(
            "no combination of params and optional inputs satisfies the rules",
            "remove the rule that refuses all of them",
        )
    order = [value.name for value in signature.inputs] + [o.name for o in signature.outputs]

    def rank(effect: tuple[tuple[str, ...], bool, tuple[str, ...]]) -> tuple[Any, ...]:
        written, out, omitted = effect
        left, put = ([order.index(name) for name in names] for names in (omitted, written))
        return len(left), left, out, len(put), put

    return tuple(_branch(base, signature, *effect) for effect in sorted(effects, key=rank))


def _branch(
    base: str, signature: Signature, written: tuple[str, ...], out: bool, omitted: tuple[str, ...]
) -> Branch:
    suffix = "".join(f"_writes_{name}" for name in written)
    suffix += "_out" if out else ""
    suffix += "".join(f"_without_{name}" for name in omitted)
    returns = tuple(
        output.name
        for output in signature.outputs
        if output.name not in omitted
        and output.alias not in written
        and not (out and output.buffer == "out")
    )
    return Branch(base + suffix, written, out, omitted, returns)


def _effect(
    signature: Signature, facts: Mapping[str, Any], out: bool
) -> tuple[tuple[str, ...], bool, tuple[str, ...]]:
    written = tuple(
        value.name
        for value in signature.inputs
        if facts[value.name] is not None and _holds(value.mutated, facts)
    )
    omitted = tuple(
        output.name
        for output in signature.outputs
        if output.when is not None and not _holds(output.when, facts)
    )
    return written, out, omitted


def _combinations(signature: Signature) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield every satisfiable combination of facts that effects depend on, and of ``out``."""
    optional = [value for value in signature.inputs if value.optional is not False]
    presence = {value.name for value in signature.inputs}
    params = {param.name: param for param in signature.params}
    conditions = _conditions(signature.inputs, signature.outputs)
    read = {name for condition in conditions for name in condition.names if name in params}
    rules = []
    for rule in signature.rules:
        names = rule.require.names
        enumerable = all(
            name in presence or _enumerable(params.get(name), [rule.require]) for name in names
        )
        if enumerable and (names & presence or names & read):
            rules.append(rule.require)
            read |= names & params.keys()
    for name in read:
        if not _enumerable(params[name], conditions):
            raise EffectError(
                f"the param {name!r} has too many values for an effect to depend on",
                "an effect reads bools, params with choices, and whether a param is None",
            )
    columns = [*sorted(read), *(value.name for value in optional)]
    values = [_values(params[name]) for name in sorted(read)]
    values += [(None, _GIVEN) for _ in optional]
    size = 1
    for column in values:
        size *= len(column)
    if size > MAX_COMBINATIONS:
        raise EffectError(
            f"effects depend on {size} combinations of params and inputs",
            f"let them depend on at most {MAX_COMBINATIONS}",
        )
    for row in itertools.product(*values):
        facts = {**dict.fromkeys(presence, _GIVEN), **dict(zip(columns, row, strict=True))}
        required = (v for v in optional if facts[v.name] is None)
        if not all(_holds(value.optional, facts) for value in required):
            continue
        if not all(rule.evaluate(facts) for rule in rules):
            continue
        yield facts, False
        if any(
            output.buffer == "out" and (output.when is None or _holds(output.when, facts))
            for output in signature.outputs
        ):
            yield facts, True


def _conditions(inputs: Sequence[Input], outputs: Sequence[Output]) -> list[Expression]:
    found = [condition for value in inputs for condition in (value.optional, value.mutated)]
    return [c for c in [*found, *(o.when for o in outputs)] if isinstance(c, Expression)]


def _holds(condition: bool | Expression, facts: Mapping[str, Any]) -> bool:
    return condition if isinstance(condition, bool) else bool(condition.evaluate(facts))


def _values(param: Param) -> tuple[Any, ...]:
    values: tuple[Any, ...] = (_GIVEN,)
    if param.type == "bool":
        values = (False, True)
    elif param.choices is not None:
        values = tuple(param.choices)
    return (None, *values) if param.optional else values


def _enumerable(param: Param | None, readers: Sequence[Expression]) -> bool:
    """Whether the values of ``param`` that ``readers`` tell apart can be listed."""
    if param is None:
        return False
    if param.type == "bool" or param.choices is not None:
        return True
    return all(_only_presence(reader.tree, param.name) for reader in readers)


def _only_presence(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        return True
    if isinstance(node, ast.Name):
        return node.id != name
    return all(_only_presence(child, name) for child in ast.iter_child_nodes(node))
