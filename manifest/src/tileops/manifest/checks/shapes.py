"""Level 2: shapes, whose every name must be known in every call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tileops.manifest.calls import fixed_rank
from tileops.manifest.checks.report import Report, Where, closest, shown
from tileops.manifest.checks.signature import check_type
from tileops.manifest.environments import bound_by, rule_names
from tileops.manifest.model import Entry, Shape, ShapeItem, ShapeKind, Signature
from tileops.manifest.typecheck import Type, implied

__all__ = ["check_shapes"]


def check_shapes(entry: Entry, report: Report) -> None:
    """Report names that nothing binds, ambiguous alternatives and unusable expressions."""
    signature = entry.signature
    names = rule_names(signature)
    firm: set[str] = set()
    for at, value in enumerate(signature.inputs):
        where: Where = ("signature", "inputs", at)
        own = _where_present(names, frozenset({value.name}))
        for which, shape in enumerate(value.shapes):
            place = (*where, "shape") if len(value.shapes) == 1 else (*where, "shapes", which)
            _check_items(signature, shape, own, place, report)
            _check_variadics(shape, firm, place, report)
        if len(value.shapes) > 1:
            _check_alternatives(value.shapes, (*where, "shapes"), report)
        if value.optional is False:
            firm |= _binds(value.shapes[0])
    for at, output in enumerate(signature.outputs):
        given = frozenset() if output.when is None else implied(output.when)
        own = _where_present(names, given)
        _check_items(signature, output.shape, own, ("signature", "outputs", at, "shape"), report)
    for name in signature.dims:
        where = ("signature", "dims", name)
        if not bound_by(signature, name.removeprefix("*")):
            report.add(
                where,
                "a dim is an axis of an input, in each of its alternatives, as a bare name",
                f"{name!r} is of none",
                "use it, remove it, or make it a param",
            )


def _where_present(names: Mapping[str, Type], inputs: frozenset[str]) -> dict[str, Type]:
    """Return the names as they are where some optional inputs are known to be there.

    An input's own shape is checked only where it is passed, and an output that needs an input
    (``when = "k is not None"``) has sizes only where it is made.
    """
    return {
        name: dataclasses.replace(kind, optional=False) if kind.guards & inputs else kind
        for name, kind in names.items()
    }


def _binds(shape: Shape) -> set[str]:
    return {item.text for item in shape if item.kind in (ShapeKind.DIM, ShapeKind.VARIADIC)}


def _check_items(
    signature: Signature, shape: Shape, names: Mapping[str, Type], where: Where, report: Report
) -> None:
    for at, item in enumerate(shape):
        place = (*where, at)
        if item.kind is ShapeKind.PARAM_AXES:
            _check_axes(signature, item, place, report)
        elif item.kind is ShapeKind.EXPRESSION:
            assert item.expression is not None
            check_type(item.expression, names, "int", place, report)
        else:
            _check_known(item, names, place, report)


def _check_axes(signature: Signature, item: ShapeItem, where: Where, report: Report) -> None:
    shapes = [p.name for p in signature.params if p.type in ("shape", "ints") and not p.optional]
    if item.text not in shapes:
        variadics = [name[1:] for name in signature.dims if name.startswith("*")]
        report.add(
            where,
            f"{shown(where)}: a starred name is a variadic dim or a shape param",
            f"'*{item.text}'",
            closest(item.text, [*variadics, *shapes], "declare it in signature.dims"),
        )


def _check_known(item: ShapeItem, names: Mapping[str, Type], where: Where, report: Report) -> None:
    """Check a bare dim or param."""
    found = names[item.text]
    wanted = "ints" if item.kind is ShapeKind.VARIADIC else "int"
    if found.kind != wanted:
        report.add(
            where,
            f"{shown(where)} is an int param or a dim",
            f"{item.text!r}, {found}",
            "star it, or index it",
        )
    elif found.optional:
        guards = ", ".join(sorted(found.guards))
        why = f"which only {guards} binds" if guards else "which may be None"
        report.add(
            where,
            f"{shown(where)} is known in every call",
            f"{item.text!r}, {why}",
            "use a size that is always there",
        )


def _check_variadics(shape: Shape, firm: set[str], where: Where, report: Report) -> None:
    free = [i.text for i in shape if i.kind is ShapeKind.VARIADIC and i.text not in firm]
    if len(free) > 1:
        report.add(
            where,
            f"{shown(where)} has at most one variadic dim that earlier inputs do not bind",
            ", ".join(f"'*{name}'" for name in free),
            "bind the others at an earlier input",
        )


def _check_alternatives(shapes: tuple[Shape, ...], where: Where, report: Report) -> None:
    """Alternatives are told apart by rank: a fixed rank first, then the one that is variadic."""
    ranks = list(map(fixed_rank, shapes))
    if len(set(ranks)) < len(ranks):
        listed = ", ".join("any" if rank is None else str(rank) for rank in ranks)
        report.add(
            where,
            f"{shown(where)} have different ranks, one of them at most variadic",
            f"ranks {listed}",
            "tell them apart by rank, or write two inputs",
        )
