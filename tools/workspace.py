"""The distributions of this repository: where they are, what they say, what they need."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ROOT", "Distribution", "closure", "dependants", "distributions", "pinned", "table"]

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Distribution:
    """One distribution: ``family`` is what its name and its import name end with."""

    family: str
    folder: Path

    @property
    def name(self) -> str:
        return f"tileops-{self.family}"

    @property
    def package(self) -> Path:
        return self.folder / "src" / "tileops" / self.family.replace("-", "_")

    @property
    def packages(self) -> list[Path]:
        """:attr:`package`, and others that it ships beside it in the namespace."""
        return sorted(path.parent for path in self.folder.glob("src/tileops/*/__init__.py"))

    @property
    def changelog(self) -> Path:
        return self.folder / "CHANGELOG.md"

    @property
    def fragments(self) -> Path:
        """Where the changes lie that the next release will list."""
        return self.folder / "changes"

    @functools.cached_property
    def project(self) -> dict[str, Any]:
        project: dict[str, Any] = table(self.folder / "pyproject.toml")["project"]
        return project

    @property
    def siblings(self) -> list[Requirement]:
        """What it requires of the other distributions here."""
        wanted = map(Requirement, self.project["dependencies"])
        return [one for one in wanted if canonicalize_name(one.name).startswith("tileops-")]

    @property
    def version(self) -> str:
        """What its code says; the version of its metadata is read from there.

        Raises:
            ValueError: its code says none.
        """
        about = self.package / "__about__.py"
        found = re.search(r'^__version__ = "([^"]+)"$', about.read_text("utf-8"), re.MULTILINE)
        if found is None:
            raise ValueError(f'{about}: __version__ = "…" is expected on a line of its own')
        return found[1]


def distributions(root: Path = ROOT) -> dict[str, Distribution]:
    """Every distribution, by family; the manifest, which all others need, first."""
    folders = {path.name.removeprefix("tileops-"): path for path in root.glob("packages/*")}
    found = {"manifest": root / "manifest", **dict(sorted(folders.items()))}
    return {
        family: Distribution(family, folder)
        for family, folder in found.items()
        if (folder / "pyproject.toml").is_file()
    }


def closure(family: str, root: Path = ROOT) -> list[str]:
    """The family and, each once, all families that it needs."""
    known = distributions(root)
    needed = [family]
    for name in needed:
        for sibling in known[name].siblings:
            other = canonicalize_name(sibling.name).removeprefix("tileops-")
            if other not in needed:
                needed.append(other)
    return needed


def dependants(families: Iterable[str], root: Path = ROOT) -> list[str]:
    """The families and all that need one of them, in the order of :func:`distributions`."""
    changed = set(families)
    return [family for family in distributions(root) if changed & set(closure(family, root))]


def pinned(package: str, root: Path = ROOT) -> str:
    """The version of a package that the work environment pins.

    Raises:
        ValueError: it pins none.
    """
    environment = table(root / "pyproject.toml")["tool"]["hatch"]["envs"]["default"]
    for requirement in map(Requirement, environment["dependencies"]):
        specifiers = list(requirement.specifier)
        if requirement.name == package and [one.operator for one in specifiers] == ["=="]:
            return specifiers[0].version
    raise ValueError(f"pyproject.toml: the default environment pins no version of {package}")


def table(path: Path) -> dict[str, Any]:
    """A TOML file's content."""
    return tomllib.loads(path.read_text("utf-8"))
