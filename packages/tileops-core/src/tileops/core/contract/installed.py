"""What is installed, and what of it cannot be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points

__all__ = ["load_all", "versions"]

GROUPS = ("tileops.families", "tileops.contracts")


def load_all(families: Sequence[str] = ()) -> dict[str, str]:
    """Imports every family and its contracts; by entry point, why one could not be.

    Of ``families``, where some are named, else of all: what is wrong with others is theirs.
    """
    problems = {}
    for group in GROUPS:
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            if families and point.name not in families:
                continue
            try:
                point.load()
            # A package that ends the process where it cannot be used ends no other's checks.
            except (Exception, SystemExit) as error:
                problems[f"{group} {point.name} = {point.value}"] = (
                    f"{type(error).__name__}: {error}"
                )
    return problems


def versions() -> dict[str, str]:
    """The versions of the distributions that offer families, contracts, entries or targets."""
    found = {}
    for group in (*GROUPS, "tileops.entries", "tileops.targets"):
        for point in entry_points(group=group):
            if point.dist is not None:
                found[point.dist.metadata["Name"]] = point.dist.version
    return dict(sorted(found.items()))
