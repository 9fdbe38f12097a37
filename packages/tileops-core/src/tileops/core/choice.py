"""Which of the installed ops and of their workloads a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tileops.core.conformance import classes
from tileops.core.op import Op

__all__ = ["Choice", "chosen", "ordered_classes"]


class Choice(NamedTuple):
    """Which ops, families and workloads are meant, by name; nothing named is everything."""

    ops: Sequence[str] = ()
    families: Sequence[str] = ()
    workloads: Sequence[str] = ()


def ordered_classes() -> list[type[Op]]:
    return sorted(classes(), key=lambda cls: (cls.entry.family, cls.entry.name))


def chosen(choice: Choice) -> list[type[Op]]:
    """The ops of ``choice`` that have one of its workloads.

    Raises:
        ValueError: it names what is not installed, or nothing is of all that it names.
    """
    found = ordered_classes()
    _known("op", choice.ops, {cls.entry.name for cls in found})
    _known("family", choice.families, {cls.entry.family for cls in found})
    if choice.ops:
        found = [cls for cls in found if cls.entry.name in choice.ops]
    if choice.families:
        found = [cls for cls in found if cls.entry.family in choice.families]
    if not found:
        raise ValueError("no installed op is of that name and family")
    labels = {workload.label for cls in found for workload in cls.entry.workloads}
    _known("workload", choice.workloads, labels)
    return found


def _known(what: str, named: Sequence[str], there: set[str]) -> None:
    for name in named:
        if name not in there:
            listing = ", ".join(sorted(there)) or "none"
            raise ValueError(f"there is no {what} {name!r}; there are: {listing}")
