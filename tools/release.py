"""Moves versions, and checks and collects what the tag of a release publishes.

    hatch run upkeep:release bump FAMILY VERSION    its version, and the ranges that this leaves
    hatch run upkeep:release check TAG              is everything in place for norm-v0.2.0
    hatch run upkeep:release collect TAG            after build:all: its files into dist/release/

A tag releases one distribution; the README has the steps.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tileops.manifest import ManifestError
from tools import changes, ranges, wheels
from tools.git import git
from tools.workspace import ROOT, Distribution, distributions

__all__ = ["bump", "collect", "faults", "main", "tagged"]

TAG = re.compile(r"([a-z][a-z0-9-]*)-v([0-9]+\.[0-9]+\.[0-9]+)")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="release", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    move = commands.add_parser("bump", help="move a version, and the ranges that it leaves")
    move.add_argument("family", choices=list(distributions(root)))
    move.add_argument("version", metavar="VERSION", help="MAJOR.MINOR.PATCH")
    for name, what in (("check", "is everything in place"), ("collect", "gather its files")):
        commands.add_parser(name, help=what).add_argument("tag", help="FAMILY-vMAJOR.MINOR.PATCH")
    options = parser.parse_args(arguments)
    if options.command == "bump":
        return _bump(options.family, options.version, root)
    try:
        found = faults(options.tag, root)
    except ManifestError as error:
        found = [str(error)]
    for fault in found:
        print(f"release: {fault}", file=sys.stderr)
    if found:
        return 1
    distribution = tagged(options.tag, root)
    if options.command == "collect":
        for path in collect(distribution, root):
            print(f"release: {path.relative_to(root)}")
        return 0
    print(f"release: {distribution.name} {distribution.version} can be published")
    output = os.environ.get("GITHUB_OUTPUT")
    if output:
        with Path(output).open("a", encoding="utf-8") as stream:
            stream.write(f"family={distribution.family}\n")
    return 0


def _bump(family: str, version: str, root: Path) -> int:
    try:
        changed = bump(distributions(root)[family], version, root)
    except ValueError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in changed:
        print(f"release: {path.relative_to(root)}")
    return 0


def bump(distribution: Distribution, version: str, root: Path = ROOT) -> list[Path]:
    """Move a distribution to a version, and each range of a sibling that does not admit it.

    A sibling whose range has moved needs a fragment, and a release, of its own.

    Raises:
        ValueError: the version is none, or not above the present one; or a range is spelt in a way
            that cannot be moved.
    """
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        raise ValueError(f"{version!r} is no MAJOR.MINOR.PATCH")
    if Version(version) <= Version(distribution.version):
        raise ValueError(
            f"{distribution.name} is at {distribution.version}; {version} is not above"
        )
    about = distribution.package / "__about__.py"
    text = about.read_text("utf-8")
    moved = {about: text.replace(f'"{distribution.version}"', f'"{version}"')}
    for other in distributions(root).values():
        for requirement in other.siblings:
            left = not requirement.specifier.contains(version)
            if canonicalize_name(requirement.name) == distribution.name and left:
                settings = other.folder / "pyproject.toml"
                moved[settings] = _with_range(settings, requirement, f"~={version}")
    for path, text in moved.items():
        path.write_text(text, "utf-8")
    return list(moved)


def _with_range(settings: Path, requirement: Requirement, specifier: str) -> str:
    text = settings.read_text("utf-8")
    old, new = f'"{requirement}"', f'"{canonicalize_name(requirement.name)}{specifier}"'
    if old not in text:
        raise ValueError(f"{settings} spells {requirement} in another way; write there {new}")
    return text.replace(old, new)


def tagged(tag: str, root: Path = ROOT) -> Distribution:
    """The distribution that a tag releases.

    Raises:
        ValueError: the tag is none of a release, or of no distribution.
    """
    match = TAG.fullmatch(tag)
    known = distributions(root)
    if match is None or match[1] not in known:
        raise ValueError(
            f"the tag {tag!r} is no FAMILY-vMAJOR.MINOR.PATCH, FAMILY one of {', '.join(known)}"
        )
    return known[match[1]]


def faults(tag: str, root: Path = ROOT) -> list[str]:
    """What stands in the way of publishing what ``tag`` names."""
    try:
        one = tagged(tag, root)
    except ValueError as error:
        return [str(error)]
    found = []
    if tag != f"{one.family}-v{one.version}":
        found.append(f"the tag is {tag}, and the code of {one.name} says {one.version}")
    tagged_commit = _commit(tag, root)
    if tagged_commit is not None and tagged_commit != git(root, "rev-parse", "HEAD"):
        found.append(
            f"the tag {tag} is there already, at {tagged_commit[:12]}, and this checkout is "
            f"another commit; move the version on with: hatch run upkeep:release bump "
            f"{one.family} NEW"
        )
    if changes.headings(one)[:1] != [one.version]:
        found.append(
            f"{one.changelog.relative_to(root)} does not begin with {one.version}; run: hatch run "
            f"upkeep:changes build {one.family}"
        )
    for fragment in changes.unreleased(one):
        found.append(f"{fragment.relative_to(root)} is in no changelog yet")
    released = (git(root, "tag", "--list") or "").split()
    for requirement in one.siblings:
        sibling = canonicalize_name(requirement.name).removeprefix("tileops-")
        versions = [
            match[2] for match in map(TAG.fullmatch, released) if match and match[1] == sibling
        ]
        if not any(map(requirement.specifier.contains, versions)):
            found.append(
                f"{one.name} requires {requirement}, and no such version has a tag; release "
                f"{sibling} first"
            )
    return [*found, *ranges.sibling_faults(root), *_manifest_faults(tag, one, root)]


def _manifest_faults(tag: str, one: Distribution, root: Path) -> list[str]:
    """Against the release before this one, whether or not this one has its tag yet."""
    if one.family != "manifest":
        return []
    others = ("--match", "manifest-v*", "--exclude", tag)
    before = git(root, "describe", "--tags", "--abbrev=0", *others, "HEAD")
    return ranges.manifest_faults(before, root) if before else []


def _commit(tag: str, root: Path) -> str | None:
    """The commit that a tag names, None where there is no such tag."""
    return git(root, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")


def collect(distribution: Distribution, root: Path = ROOT) -> list[Path]:
    """Copy the distribution's sdist and wheel from ``dist/`` to ``dist/release/``.

    Raises:
        SystemExit: one of them is not there, or the wheel is not what the distribution is.
    """
    stem = f"{distribution.name.replace('-', '_')}-{distribution.version}"
    files = [root / "dist" / f"{stem}.tar.gz", root / "dist" / f"{stem}-py3-none-any.whl"]
    absent = [path.name for path in files if not path.is_file()]
    if absent:
        sys.exit(f"release: dist/ lacks {', '.join(absent)}; run: hatch run build:all")
    wrong = wheels.faults(files[1], distribution)
    if wrong:
        sys.exit("release: " + "; ".join(wrong))
    target = root / "dist" / "release"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    return [Path(shutil.copy(path, target)) for path in files]


if __name__ == "__main__":
    sys.exit(main())
