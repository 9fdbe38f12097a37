"""Manifests from elsewhere: a folder, a wheel, a git revision, a release, what is installed."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from tileops.manifest.faults import Fault, ManifestError
from tileops.manifest.load import decode, load_text
from tileops.manifest.model import Entry
from tileops.manifest.versions import release

__all__ = ["NotReleasedError", "Source", "SourceError", "read_source"]

_ENTRY: Final = re.compile(r"(?:^|/)tileops/manifest/entries/[^/]+/[^/]+\.toml$")
_ABOUT: Final = re.compile(r"(?:^|/)tileops/manifest/__about__\.py$")
_VERSION: Final = re.compile(r"""^__version__\s*=\s*["']([^"']+)["']""", re.MULTILINE)


class SourceError(Exception):
    """What was named as a manifest is none."""


class NotReleasedError(SourceError):
    """The last release was asked for, and there is none."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One version of the manifest. ``version`` is None where nothing says it."""

    label: str
    version: str | None
    entries: Mapping[str, Entry]


def read_source(name: str, repository: Path | None = None) -> Source:
    """Return the manifest that ``name`` is.

    ``installed`` is the one that runs, ``released`` that of the newest tag ``manifest-v…`` before
    the checked-out commit; else it is a folder, a wheel or a git revision. A folder is a checkout,
    or any folder that has entries below it. Revisions are looked up in ``repository``, the working
    directory's unless said otherwise.

    :raises NotReleasedError: it is ``released``, and nothing was.
    :raises SourceError: it is none of these, or holds no entries.
    :raises ManifestError: entries in it are wrong.
    """
    path = Path(name)
    if name == "installed":
        path = Path(__file__).parent
    elif name == "released":
        return _source(name, *_from_git(_last_release(repository or Path()), repository or Path()))
    if not name:
        raise SourceError("an empty name is no folder, no wheel and no git revision")
    if path.is_dir():
        return _source(name, *_from_folder(path))
    if path.suffix == ".whl" and path.is_file():
        try:
            with zipfile.ZipFile(path) as wheel:
                return _source(name, wheel.namelist(), wheel.read)
        except (zipfile.BadZipFile, OSError) as error:
            raise SourceError(f"{name} is no wheel: {error}") from None
    return _source(name, *_from_git(name, repository or Path()))


Read = Callable[[str], bytes]


def _source(label: str, names: list[str], read: Read) -> Source:
    names = [name for name in names if PurePosixPath(name).name != "pyproject.toml"]
    files = [name for name in names if _ENTRY.search(name)]
    if not files:
        # A folder of entries by itself, not inside the package.
        files = [name for name in names if re.fullmatch(r"[^/]+/[^/]+\.toml", name)]
    if not files:
        raise SourceError(f"{label} holds no entries (…/tileops/manifest/entries/FAMILY/OP.toml)")
    entries: dict[str, Entry] = {}
    faults: list[Fault] = []
    for name in sorted(files):
        try:
            path = Path(f"{label}:{name}")
            entry = load_text(_text(path, name, read), path)
        except ManifestError as error:
            faults.extend(error.faults)
            continue
        first = entries.setdefault(entry.name, entry)
        if first is not entry:
            faults.append(
                Fault(
                    path,
                    1,
                    f"an op has one entry, and {first.path} is that of {entry.name}",
                    "a second one",
                    "rename the op, or remove one of the two",
                )
            )
    if faults:
        raise ManifestError(faults)
    about = next((name for name in names if _ABOUT.search(name)), None)
    found = _VERSION.search(_text(Path(f"{label}:{about}"), about, read)) if about else None
    version = found[1] if found else None
    if version is not None:
        try:
            release(version)
        except ValueError as error:
            raise SourceError(f"{label} says a version that is none: {error}") from None
    return Source(label, version, entries)


def _text(path: Path, name: str, read: Read) -> str:
    try:
        return decode(path, read(name))
    except OSError as error:
        found = error.strerror or str(error)
        fault = Fault(path, 0, "an entry is a readable file", found, "mend the file, or remove it")
        raise ManifestError([fault]) from None


def _from_folder(path: Path) -> tuple[list[str], Read]:
    root = path.resolve()
    # A path inside the package keeps the package's name, by which entries are recognised.
    parts = root.parts
    for depth in range(len(parts) - 1):
        if parts[depth : depth + 2] == ("tileops", "manifest"):
            root = Path(*parts[:depth])
            break
    below = PurePosixPath(path.resolve().relative_to(root).as_posix())
    names = []
    for pattern in ("*.toml", "__about__.py"):
        for file in root.joinpath(below).rglob(pattern):
            names.append(file.relative_to(root).as_posix())
    if below.parts:
        about = root / "tileops" / "manifest" / "__about__.py"
        if about.is_file():
            names.append(about.relative_to(root).as_posix())
    visible = [name for name in names if not any(part[0] == "." for part in name.split("/"))]
    return visible, lambda name: (root / name).read_bytes()


def _last_release(repository: Path) -> str:
    arguments = ["describe", "--tags", "--abbrev=0", "--match", "manifest-v*"]
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode != 0:
        raise NotReleasedError("no tag manifest-v… comes before the checked-out commit")
    return done.stdout.strip()


def _from_git(revision: str, repository: Path) -> tuple[list[str], Read]:
    def git(*arguments: str) -> bytes:
        try:
            done = subprocess.run(
                ["git", "-C", str(repository), *arguments],
                check=True,
                capture_output=True,
            )
        except FileNotFoundError:
            raise SourceError(
                f"{revision} is no folder and no wheel, and git is not installed"
            ) from None
        except subprocess.CalledProcessError:
            raise SourceError(f"{revision} is no folder, no wheel and no git revision") from None
        return done.stdout

    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    commit = found.decode().strip()
    names = git("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit)
    return os.fsdecode(names).split("\0"), lambda name: git("show", f"{commit}:{name}")
