"""Comparing two whole manifests, and the version that the newer one must have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tileops.manifest.diff.change import Change, Level
from tileops.manifest.diff.entry import compare_entries
from tileops.manifest.model import Entry
from tileops.manifest.versions import Version, release

__all__ = ["Difference", "compare", "required_version"]


@dataclasses.dataclass(frozen=True)
class Difference:
    """All changes, by op."""

    changes: tuple[Change, ...]

    @property
    def level(self) -> Level | None:
        """The level of the farthest-reaching change, or None where nothing changed."""
        return max((change.level for change in self.changes), default=None)


def compare(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Difference:
    """Return what changed between two manifests, by the entries' names."""
    changes: list[Change] = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            planned = old[name].status == "planned"
            level = Level.NEUTRAL if planned else Level.BREAKING
            changes.append(Change(name, level, f"is gone ({old[name].status})"))
        elif name not in old:
            planned = new[name].status == "planned"
            level = Level.NEUTRAL if planned else Level.ADDITIVE
            changes.append(Change(name, level, f"is new ({new[name].status})"))
        else:
            changes.extend(compare_entries(old[name], new[name]))
    return Difference(tuple(changes))


def required_version(old: str, level: Level | None) -> tuple[Version, str]:
    """Return the least version that may follow ``old``, and the part of it that moves.

    From 1.0 on a breaking change moves the major, an additive one the minor and a neutral one the
    patch version. Before, as siblings declare ``~=0.1.2``, which admits 0.1.3 and not 0.2.0, a
    breaking change moves the minor and any other the patch version.
    """
    major, minor, patch = release(old)
    if level is None:
        return (major, minor, patch), "none"
    if level is Level.BREAKING and major:
        return (major + 1, 0, 0), "major"
    if level is Level.BREAKING or (level is Level.ADDITIVE and major):
        return (major, minor + 1, 0), "minor"
    return (major, minor, patch + 1), "patch"
