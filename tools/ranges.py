"""Finds versions that do not fit together before a user's installer does.

- A range that a distribution declares must admit the version that its sibling is at.
- The version in a distribution's metadata, built or installed, is the one that its code says.
- A change of the manifest moves the manifest's version as far as ``tileops-manifest diff`` says.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.utils import canonicalize_name

from tileops.manifest import ManifestError
from tileops.manifest.diff import compare, required_version
from tileops.manifest.sources import NotReleasedError, SourceError, read_source
from tileops.manifest.versions import release
from tools.git import merge_base
from tools.workspace import ROOT, Distribution, distributions

__all__ = ["faults", "main", "manifest_faults", "metadata_faults", "sibling_faults"]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="ranges", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--base",
        default="released",
        help="the manifest's older version: a git revision, a folder or a wheel; default: its last "
        "release",
    )
    base = parser.parse_args(arguments).base
    try:
        found = faults(base, root)
    except (SourceError, ManifestError) as error:
        print(f"ranges: {error}", file=sys.stderr)
        return 2
    for fault in found:
        print(f"ranges: {fault}", file=sys.stderr)
    if not found:
        print(f"ranges: {len(distributions(root))} distributions fit together")
    return int(bool(found))


def faults(base: str = "released", root: Path = ROOT) -> list[str]:
    """Everything that does not fit."""
    return [*sibling_faults(root), *metadata_faults(root), *manifest_faults(base, root)]


def sibling_faults(root: Path = ROOT) -> list[str]:
    """Ranges that refuse the sibling of this checkout."""
    known = {one.name: one for one in distributions(root).values()}
    found = []
    for one in known.values():
        for requirement in one.siblings:
            sibling = known.get(canonicalize_name(requirement.name))
            if sibling is None:
                found.append(f"{one.name} requires {requirement}, and no folder here is that")
            elif not requirement.specifier.contains(sibling.version, prereleases=True):
                found.append(
                    f"{one.name} requires {requirement}, and {sibling.name} is at "
                    f"{sibling.version}; write {sibling.name}~={sibling.version} in "
                    f"{(one.folder / 'pyproject.toml').relative_to(root)}"
                )
    return found


def metadata_faults(
    root: Path = ROOT, installed: Callable[[str], str] = importlib.metadata.version
) -> list[str]:
    """Metadata whose version is not the code's.

    ``installed`` gives the version that is installed of a distribution, or raises
    :exc:`importlib.metadata.PackageNotFoundError`.
    """
    found = []
    for one in distributions(root).values():
        built = _built_version(one)
        if built != one.version:
            found.append(
                f"{one.name}: its wheel would say {built}, and "
                f"{(one.package / '__about__.py').relative_to(root)} says {one.version}; point "
                "[tool.hatch.version] there"
            )
        try:
            there = installed(one.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if there != one.version:
            found.append(
                f"{one.name}: {there} is installed, and its code says {one.version}; make the "
                "environment anew with: ./tools/bootstrap"
            )
    return found


def _built_version(distribution: Distribution) -> str:
    return str(ProjectMetadata(str(distribution.folder), PluginManager()).version)


def manifest_faults(base: str = "released", root: Path = ROOT) -> list[str]:
    """A manifest whose version has not moved as far as its changes since ``base`` ask for.

    Raises:
        SourceError: ``base`` is no manifest.
        ManifestError: entries are wrong.
    """
    new = read_source(str(root / "manifest"), root)
    try:
        # What others have changed on a branch since is no change of this one.
        old = read_source(merge_base(root, base) or base, root)
    except NotReleasedError:
        return []
    if old.version is None or new.version is None:
        return [f"the manifest {base} does not say its version, so no bump can be checked"]
    changes = compare(old.entries, new.entries)
    needed, part = required_version(old.version, changes.level)
    if release(new.version) >= needed:
        return []
    least = ".".join(map(str, needed))
    listed = "; ".join(map(str, changes.changes))
    return [
        f"tileops-manifest is at {new.version}, and its changes since {base} ({old.version}) need "
        f"at least {least}, as the {part} version must move: {listed}; run: hatch run "
        f"upkeep:release bump manifest {least}"
    ]


if __name__ == "__main__":
    sys.exit(main())
