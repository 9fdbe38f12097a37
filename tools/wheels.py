"""What a wheel of this repository may hold: its own code, entries, schemas, licence, metadata."""

from __future__ import annotations

import email
import re
import zipfile
from pathlib import Path

from tools.workspace import Distribution

__all__ = ["faults", "metadata_version"]

CODE = re.compile(r"(?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py")
ENTRY = re.compile(r"entries/[a-z_][a-z0-9_]*/[a-z_][a-z0-9_]*\.toml")
SCHEMA = re.compile(r"schema/[a-z-]+\.schema\.json")
METADATA = {"METADATA", "RECORD", "WHEEL", "licenses/LICENSE"}


def faults(wheel: Path, distribution: Distribution) -> list[str]:
    """What the wheel lacks of the distribution, and what it holds beyond it."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    own = tuple(f"tileops/{package.name}/" for package in distribution.packages)
    info = f"{wheel.name.split('-')[0]}-{distribution.version}.dist-info/"
    found = {
        name
        for name in held
        if not name.startswith((*own, info))
        or (name.startswith(own) and not _ships(name.split("/", 2)[2], distribution))
    }
    metadata = {name[len(info) :] for name in held if name.startswith(info)}
    offered = METADATA | ({"entry_points.txt"} if _has_entry_points(distribution) else set())
    found |= {info + name for name in metadata - offered}
    missing = {info + name for name in offered - metadata} | (expected(distribution) - held)
    return [
        *(f"{wheel.name} holds {name}, which is no part of it" for name in sorted(found)),
        *(f"{wheel.name} lacks {name}" for name in sorted(missing)),
    ]


def expected(distribution: Distribution) -> set[str]:
    """Every file of the distribution that is to be in its wheel."""
    found = {f"tileops/{distribution.package.name}/py.typed"}
    for package in distribution.packages:
        files = [path for path in package.rglob("*") if path.is_file()]
        names = [path.relative_to(package).as_posix() for path in files]
        found |= {f"tileops/{package.name}/{name}" for name in names if _ships(name, distribution)}
    if distribution.family == "manifest":
        schemas = distribution.folder.parent.glob("schema/*.json")
        found |= {f"tileops/manifest/schema/{path.name}" for path in schemas}
    return found


def metadata_version(wheel: Path) -> str:
    """The version that the wheel's metadata says."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return str(email.message_from_bytes(archive.read(name))["Version"])


def _ships(name: str, distribution: Distribution) -> bool:
    manifest = distribution.family == "manifest"
    data = manifest and (ENTRY.fullmatch(name) or SCHEMA.fullmatch(name))
    return name == "py.typed" or bool(CODE.fullmatch(name) or data)


def _has_entry_points(distribution: Distribution) -> bool:
    return bool({"scripts", "entry-points"} & distribution.project.keys())
