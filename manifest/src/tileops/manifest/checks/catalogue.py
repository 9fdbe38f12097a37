"""Level 2: what only all entries together can show: names, files and compositions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.manifest.checks.report import Report, Where, closest
from tileops.manifest.checks.signature import check_type
from tileops.manifest.environments import param_names
from tileops.manifest.expressions import Expression
from tileops.manifest.faults import shown_path
from tileops.manifest.model import Entry
from tileops.manifest.names import class_key, operator_name, stem_key

__all__ = ["check_catalogue", "check_file_name"]


def check_file_name(entry: Entry, report: Report) -> None:
    """Report an entry whose file is not ``<family>/<snake>.toml``, or whose snake is not its name.

    The loader finds an entry by its file's name, without reading it.
    """
    if stem_key(entry.snake) != class_key(entry.name):
        report.add(
            ("snake",),
            f"snake splits {entry.name} (a trailing Op dropped) into words, and changes no letter",
            repr(entry.snake),
            "put underscores between the words of the class's name",
        )
    expected = f"{entry.family}/{entry.snake}.toml"
    # The folder counts too, where a path starts inside it.
    actual = "/".join(entry.path.absolute().parts[-2:])
    if actual != expected:
        report.add(("name",), f"the file of {entry.name} is {expected}", actual, "rename the file")


def check_catalogue(entries: Sequence[tuple[Entry, Report]], known: Mapping[str, Entry]) -> None:
    """Report doubles and wrong compositions among ``entries``.

    ``known`` are further entries, by name, that compositions may use.
    """
    classes: dict[str, Entry] = {}
    operators: dict[str, Entry] = {}
    for entry, report in entries:
        first = classes.setdefault(entry.name, entry)
        if first is not entry:
            report.add(
                ("name",),
                f"an op has one entry, and {_place(first)} is that of {entry.name}",
                "a second one",
                "rename the op, or remove one of the two",
            )
            continue
        base = f"{entry.namespace}::{operator_name(entry.family, entry.snake)}"
        other = operators.setdefault(base, entry)
        if other is not entry:
            report.add(
                ("name",),
                f"two ops have different operators, and {_place(other)} has {base}",
                f"{other.name} and {entry.name}",
                "rename one of the two",
            )
    everything = {**known, **classes}
    for entry, report in entries:
        _check_composition(entry, everything, report)


def _place(entry: Entry) -> str:
    return shown_path(entry.path)


def _check_composition(entry: Entry, known: Mapping[str, Entry], report: Report) -> None:
    names = param_names(entry.signature)
    for at, part in enumerate(entry.composition):
        where: Where = ("composition", at)
        if isinstance(part.count, Expression):
            check_type(part.count, names, "int", (*where, "count"), report)
        if part.when is not None:
            check_type(part.when, names, "bool", (*where, "when"), report)
        if part.op == entry.name:
            report.add(
                (*where, "op"),
                "a composite is made of other ops",
                f"{part.op} itself",
                "name what it is made of",
            )
        elif part.op not in known:
            report.add(
                (*where, "op"),
                "a composition names ops that have entries",
                repr(part.op),
                closest(part.op, [name for name in known if name != entry.name], "write its entry"),
            )
        else:
            cycle = _cycle(entry.name, part.op, known)
            if cycle:
                report.add(
                    (*where, "op"),
                    "a composition has no cycle",
                    " → ".join(cycle),
                    "take one of these out of the other",
                )


def _cycle(start: str, first: str, known: Mapping[str, Entry]) -> list[str]:
    """Return the way from ``start`` over ``first`` back to ``start``, or nothing."""
    came: dict[str, str] = {first: start}
    waiting = [first]
    while waiting:
        name = waiting.pop()
        entry = known.get(name)
        for part in entry.composition if entry else ():
            if part.op == start:
                way = [name]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return [*reversed(way), start]
            if part.op not in came:
                came[part.op] = name
                waiting.append(part.op)
    return []
