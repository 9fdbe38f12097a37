"""Comparing two versions of one entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tileops.manifest.diff.change import Change, Level
from tileops.manifest.diff.dtypes import dtype_changes
from tileops.manifest.expressions import Expression
from tileops.manifest.model import (
    MISSING,
    CallInt,
    Entry,
    Input,
    Output,
    Param,
    Shape,
    ShapeKind,
    Signature,
)

__all__ = ["compare_entries"]

Found = Iterator[tuple[Level, str]]
Named = TypeVar("Named", Param, Input, CallInt, Output)

_NEUTRAL_KEYS = ("since", "summary", "formula", "reference", "accumulation_dtype")


def compare_entries(old: Entry, new: Entry) -> list[Change]:
    """Return every change from ``old`` to ``new``, the farthest-reaching first.

    No one can call a planned op, so nothing that happens to one breaks anything.
    """
    found = sorted(_changes(old, new), key=lambda change: -change[0])
    if old.status == "planned":
        found = [(Level.NEUTRAL, text) for _, text in found]
        if new.status == "implemented":
            found.insert(0, (Level.ADDITIVE, "is implemented"))
    elif new.status == "planned":
        found.insert(0, (Level.BREAKING, "was implemented and is planned"))
    return [Change(new.name, level, text) for level, text in found]


def _changes(old: Entry, new: Entry) -> Found:
    for key in ("namespace", "family", "snake"):
        if getattr(old, key) != getattr(new, key):
            yield Level.BREAKING, f"{key} {getattr(old, key)!r} became {getattr(new, key)!r}"
    before, after = old.signature, new.signature
    yield from _members("param", before.params, after.params, _param)
    names = {value.name for value in after.inputs}
    shared = [value.name for value in before.inputs if value.name in names]
    naming = _Naming(before, after, shared), _Naming(after, before, shared)
    yield from _members("input", before.inputs, after.inputs, lambda a, b: _input(a, b, naming))
    yield from _members("call-time number", before.ints, after.ints, _int)
    yield from _outputs(before.outputs, after.outputs, naming)
    yield from dtype_changes(before, after)
    yield from _rules(before, after, naming)
    yield from _tolerances(old, new)
    for key in _NEUTRAL_KEYS:
        if getattr(old, key) != getattr(new, key):
            yield Level.NEUTRAL, f"{key} is worded differently"
    for key in ("composition", "workloads", "roofline"):
        if old.document.get(key) != new.document.get(key):
            yield Level.NEUTRAL, f"{key} changed"
    if dict(before.dims) != dict(after.dims):
        yield Level.NEUTRAL, "dims are named or described differently"
    docs, others = _docs(old), _docs(new)
    for name in docs:
        if docs[name] != others.get(name, docs[name]):
            yield Level.NEUTRAL, f"{name} is described differently"


class _Naming:
    """Names dims that only one version has by where they stand, so that renaming changes nothing.

    They stand at ``inputs``, which both versions have. A dim of both keeps its name.
    """

    def __init__(self, signature: Signature, other: Signature, inputs: Sequence[str]) -> None:
        self.names: dict[str, str] = {}
        known = {name.removeprefix("*") for name in other.dims}
        by_name = {value.name: value for value in signature.inputs}
        for name in inputs:
            for shape in by_name[name].shapes:
                for at, item in enumerate(shape):
                    dim = item.kind in (ShapeKind.DIM, ShapeKind.VARIADIC)
                    if dim and item.text not in known:
                        self.names.setdefault(item.text, f"{name}_{at}")

    def shape(self, shape: Shape) -> list[str]:
        return [
            self.expression(item.expression)
            if item.expression is not None
            else str(item).replace(item.text, self.names.get(item.text, item.text))
            for item in shape
        ]

    def expression(self, expression: Expression) -> str:
        return expression.to_python(lambda name: self.names.get(name, name), symbolic=False)


def _members(
    what: str,
    old: Sequence[Named],
    new: Sequence[Named],
    compare: Callable[[Named, Named], Found],
) -> Found:
    """Compare two lists of what a caller passes by place or by name."""
    before, after = {v.name: v for v in old}, {v.name: v for v in new}
    for name in before:
        if name not in after:
            yield Level.BREAKING, f"the {what} {name} is gone"
    kept = [v.name for v in new if v.name in before and _by_place(v) and _by_place(before[v.name])]
    if kept != [value.name for value in old if value.name in kept]:
        yield Level.BREAKING, f"the {what}s that are passed by place changed their order"
    for at, value in enumerate(new):
        if value.name in before:
            yield from compare(before[value.name], value)
        elif not _omissible(value):
            yield Level.BREAKING, f"the {what} {value.name} is new and must be passed"
        elif _by_place(value) and any(v.name in before and _by_place(v) for v in new[at + 1 :]):
            yield Level.BREAKING, f"the {what} {value.name} is new before others passed by place"
        else:
            yield Level.ADDITIVE, f"the {what} {value.name} is new"


def _by_place(value: Param | Input | CallInt | Output) -> bool:
    return not (isinstance(value, Param) and value.keyword_only)


def _omissible(value: Param | Input | CallInt | Output) -> bool:
    if isinstance(value, Input):
        return value.optional is True
    return not isinstance(value, Output) and value.default is not MISSING


def _param(old: Param, new: Param) -> Found:
    name = f"the param {old.name}"
    if old.type != new.type:
        wider = (old.type, new.type) in (("int", "shape"), ("int", "float"), ("shape", "ints"))
        level = Level.ADDITIVE if wider else Level.BREAKING
        yield level, f"{name} of type {old.type} is of type {new.type}"
    if old.optional != new.optional:
        level = Level.ADDITIVE if new.optional else Level.BREAKING
        yield level, f"{name} {'may be None' if new.optional else 'may not be None any more'}"
    yield from _default(name, old.default, new.default)
    if old.keyword_only != new.keyword_only:
        level = Level.BREAKING if new.keyword_only else Level.ADDITIVE
        yield level, f"{name} is passed {'by name only' if new.keyword_only else 'by place too'}"
    yield from _narrowing(f"choices of {name}", old.choices, new.choices)


def _default(name: str, old: Any, new: Any) -> Found:
    if old == new:
        return
    if old is MISSING:
        yield Level.ADDITIVE, f"{name} has the default {new!r}"
    elif new is MISSING:
        yield Level.BREAKING, f"{name} has no default any more"
    else:
        yield Level.BREAKING, f"{name} has the default {new!r} instead of {old!r}"


def _narrowing(name: str, old: tuple[Any, ...] | None, new: tuple[Any, ...] | None) -> Found:
    if old is None and new is not None:
        yield Level.BREAKING, f"{name} are limited to {', '.join(map(str, new))}"
    elif old is not None and new is None:
        yield Level.ADDITIVE, f"{name} are not limited any more"
    elif old is not None and new is not None:
        for value in [value for value in old if value not in new]:
            yield Level.BREAKING, f"{name} lost {value}"
        for value in [value for value in new if value not in old]:
            yield Level.ADDITIVE, f"{name} gained {value}"


def _input(old: Input, new: Input, naming: tuple[_Naming, _Naming]) -> Found:
    name = f"the input {old.name}"
    if str(old.optional) != str(new.optional):
        looser = new.optional is True or old.optional is False
        yield (
            Level.ADDITIVE if looser else Level.BREAKING,
            f"{name} had optional = {_toml(old.optional)} and has {_toml(new.optional)}",
        )
    if str(old.mutated) != str(new.mutated):
        yield (
            Level.BREAKING,
            f"{name} had mutated = {_toml(old.mutated)} and has {_toml(new.mutated)}",
        )
    before = [naming[0].shape(shape) for shape in old.shapes]
    after = [naming[1].shape(shape) for shape in new.shapes]
    if any(shape not in after for shape in before):
        yield Level.BREAKING, f"{name} of shape {_shapes(old)} is of shape {_shapes(new)}"
    elif len(after) > len(before):
        yield Level.ADDITIVE, f"{name} of shape {_shapes(old)} may be of shape {_shapes(new)}"


def _toml(condition: bool | Expression) -> str:
    return str(condition).lower() if isinstance(condition, bool) else repr(condition.source)


def _shapes(value: Input) -> str:
    return " or ".join(f"[{', '.join(map(str, shape))}]" for shape in value.shapes)


def _int(old: CallInt, new: CallInt) -> Found:
    yield from _default(f"the call-time number {old.name}", old.default, new.default)


def _outputs(
    old: Sequence[Output], new: Sequence[Output], naming: tuple[_Naming, _Naming]
) -> Found:
    before, after = [o.name for o in old], [o.name for o in new]
    if before != after:
        yield Level.BREAKING, f"the outputs {', '.join(before)} are {', '.join(after) or 'none'}"
    by_name = {output.name: output for output in new}
    for one in old:
        two = by_name.get(one.name)
        if two is None:
            continue
        name = f"the output {one.name}"
        if naming[0].shape(one.shape) != naming[1].shape(two.shape):
            shapes = [f"[{', '.join(map(str, o.shape))}]" for o in (one, two)]
            yield Level.BREAKING, f"{name} of shape {shapes[0]} is of shape {shapes[1]}"
        if one.buffer != two.buffer:
            gone = two.buffer is None
            level = Level.BREAKING if gone else Level.ADDITIVE
            yield level, f"{name} {'does not fill `out` any more' if gone else 'may fill `out`'}"
        for key in ("alias", "when", "device"):
            one_value, two_value = getattr(one, key), getattr(two, key)
            if str(one_value) != str(two_value):
                yield Level.BREAKING, f"{name} had {key} {one_value} and has {two_value}"


def _rules(old: Signature, new: Signature, naming: tuple[_Naming, _Naming]) -> Found:
    before = {naming[0].expression(rule.require): rule for rule in old.rules}
    after = {naming[1].expression(rule.require): rule for rule in new.rules}
    for source, rule in after.items():
        if source not in before:
            yield Level.BREAKING, f"the rule {rule.require.source!r} is new"
        elif before[source].message != rule.message:
            yield Level.NEUTRAL, f"the rule {rule.require.source!r} has another message"
    for source, rule in before.items():
        if source not in after:
            yield Level.ADDITIVE, f"the rule {rule.require.source!r} is gone"


def _tolerances(old: Entry, new: Entry) -> Found:
    after = {(t.output, t.dtype): t for t in new.tolerances}
    for one in old.tolerances:
        two = after.get((one.output, one.dtype))
        name = f"the tolerance of {one.output} in {one.dtype}"
        if two is None:
            yield Level.BREAKING, f"{name} is gone"
        elif two.rtol > one.rtol or two.atol > one.atol:
            yield Level.BREAKING, f"{name} is looser"
        elif two != one and (two.rtol, two.atol) != (one.rtol, one.atol):
            yield Level.NEUTRAL, f"{name} is tighter"
    before = {(t.output, t.dtype) for t in old.tolerances}
    for key in after:
        if key not in before:
            yield Level.NEUTRAL, f"the tolerance of {key[0]} in {key[1]} is new"


def _docs(entry: Entry) -> dict[str, str]:
    signature = entry.signature
    groups = (signature.params, signature.inputs, signature.ints, signature.outputs)
    return {value.name: value.doc for group in groups for value in group}
