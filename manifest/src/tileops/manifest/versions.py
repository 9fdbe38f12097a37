"""Versions of distributions, and whether a requirement admits one.

A small part of PEP 440, enough for release numbers and the ranges that our distributions declare:
reading an entry must not need a packaging library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tileops.manifest import __about__

__all__ = [
    "Version",
    "VersionSkewError",
    "admits",
    "fits",
    "release",
    "require_siblings",
    "siblings",
]

Version = tuple[int, int, int]

_CLAUSE: Final = re.compile(r"\s*(~=|==|!=|>=|<=|>|<)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?\s*")
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)")
_SOURCES: Final = "sources"


class VersionSkewError(ImportError):
    """A distribution needs another version of a sibling than the one that is installed."""


def release(version: str) -> Version:
    """Return major, minor and patch of a version; a pre-release counts as its release.

    :raises ValueError: it does not start with a number.
    """
    match = re.match(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?", version)
    if match is None:
        raise ValueError(f"{version!r} is no version MAJOR.MINOR.PATCH")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def admits(specifier: str, version: str) -> bool:
    """Whether ``specifier`` (``~=0.1.2``, ``>=1.0, <2``) admits a version.

    :raises ValueError: the specifier has a clause that is none.
    """
    clauses = [clause for clause in specifier.split(",") if clause.strip()]
    return all(_clause_admits(clause, release(version)) for clause in clauses)


def _clause_admits(clause: str, version: Version) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise ValueError(f"{clause.strip()!r} is no version clause")
    operator, text, prefix = match.groups()
    wanted = release(text)
    given = text.count(".") + 1
    if prefix:
        same = version[:given] == wanted[:given]
        return same if operator == "==" else not same
    if operator == "~=":
        return version >= wanted and version[: given - 1] == wanted[: given - 1]
    return {
        "==": version == wanted,
        "!=": version != wanted,
        ">=": version >= wanted,
        "<=": version <= wanted,
        ">": version > wanted,
        "<": version < wanted,
    }[operator]


def fits(specifier: str, version: str) -> bool:
    """As :func:`admits`, and True for what only an installer can read: it has checked that."""
    try:
        return admits(specifier, version)
    except ValueError:
        return True


def siblings(requirements: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and range of the distributions of this project among some requirements."""
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        _, _, marker = requirement.partition(";")
        # What only an extra needs may be absent.
        if match is not None and "extra" not in marker:
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            if name.startswith("tileops-"):
                yield name, match[2].strip()


def require_siblings(distribution: str) -> None:
    """Check that the ranges that a distribution declares admit the siblings that are installed.

    A family calls this when it is imported, before it reads an entry or subclasses what a sibling
    has: an installer that is told to (``--no-deps``), or that upgrades one distribution beside
    others, leaves such sets behind. The manifest's version is that of its code, any other one that
    of its metadata. A distribution that is not installed (sources on the path) declares nothing.

    :raises VersionSkewError: a sibling is outside its range or is not there; the message has the
        versions of both, for each such sibling, and what mends it.
    """
    import importlib.metadata

    try:
        metadata = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return
    faults, mends = [], []
    for name, wanted in siblings(metadata.requires or ()):
        installed = _installed(name)
        if installed == _SOURCES or (installed is not None and fits(wanted, installed)):
            continue
        found = "is not installed" if installed is None else f"{installed} is installed"
        faults.append(f"needs {name}{wanted}, and {name} {found}")
        mends.append(f"'{name}{wanted}'")
    if faults:
        raise VersionSkewError(
            f"{distribution} {metadata.version} {'; it '.join(faults)}; mend it with: "
            f"pip install {' '.join(mends)}, or install a {distribution} that fits"
        )


def _installed(name: str) -> str | None:
    """The version of a sibling, ``_SOURCES`` where only its sources are on the path, or None."""
    if name == "tileops-manifest":
        return __about__.__version__
    import importlib.metadata
    import importlib.util

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = name.replace("tileops-", "tileops.", 1).replace("-", "_")
        return None if importlib.util.find_spec(module) is None else _SOURCES
