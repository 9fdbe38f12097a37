"""Versions of distributions, and whether a requirement admits one.

A small part of PEP 440, enough for release numbers and the ranges that our distributions declare:
reading an entry must not need a packaging library.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Version", "VersionSkewError", "admits", "release", "require_manifest"]

Version = tuple[int, int, int]

DISTRIBUTION: Final = "tileops-manifest"
_CLAUSE: Final = re.compile(r"\s*(~=|==|!=|>=|<=|>|<)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?\s*")
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)")


class VersionSkewError(ImportError):
    """A distribution reads another manifest than the one that is installed."""


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


def require_manifest(distribution: str, installed: str | None = None) -> None:
    """Check that a family's declared range admits the manifest that is installed.

    A family calls this when it is imported. ``installed`` is this distribution's version unless
    said otherwise. A distribution that is not installed (sources on the path) declares nothing.

    :raises VersionSkewError: it does not; the message has both versions and the command that mends
        it.
    """
    import importlib.metadata

    try:
        metadata = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return
    if installed is None:
        from tileops.manifest.__about__ import __version__

        installed = __version__
    for requirement in metadata.requires or ():
        match = _REQUIREMENT.match(requirement)
        if match is None or re.sub(r"[-_.]+", "-", match[1]).lower() != DISTRIBUTION:
            continue
        wanted = match[2].strip()
        if not admits(wanted, installed):
            raise VersionSkewError(
                f"{distribution} {metadata.version} reads {DISTRIBUTION}{wanted}, and "
                f"{DISTRIBUTION} {installed} is installed; mend it with: "
                f"pip install '{DISTRIBUTION}{wanted}'"
            )
