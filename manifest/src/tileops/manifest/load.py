"""Finding and reading entries. An op's entry is found by its file's name, and only it is parsed."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tileops.manifest._toml import tomllib
from tileops.manifest.checks import examine
from tileops.manifest.checks.report import Report
from tileops.manifest.faults import Fault, ManifestError
from tileops.manifest.model import Entry
from tileops.manifest.names import class_key, stem_key

if TYPE_CHECKING:
    import importlib.metadata

__all__ = [
    "EntryRoot",
    "add_entry_root",
    "entry_roots",
    "iter_entries",
    "iter_files",
    "load_entry",
    "load_file",
    "load_text",
    "root_faults",
]

NAMESPACE: Final = "tileops"
GROUP: Final = "tileops.entries"
_ENDLESS: Final = re.compile(r"[0-9][0-9_]{4000,}")
_added: list[EntryRoot] = []


@dataclasses.dataclass(frozen=True)
class EntryRoot:
    """A folder of entries, ``<family>/<op>.toml``; their operators are of ``namespace``."""

    path: Path
    namespace: str = NAMESPACE


def add_entry_root(path: str | os.PathLike[str], namespace: str = NAMESPACE) -> EntryRoot:
    """Make a folder's entries known to this process, and return its root."""
    root = EntryRoot(Path(path).absolute(), namespace)
    if root not in _added:
        _added.append(root)
        _index.cache_clear()
    return root


def entry_roots() -> tuple[EntryRoot, ...]:
    """Return every root: this distribution's, those of installed packages, those added here.

    A package offers entries through the entry-point group ``tileops.entries``. The name of the
    entry point is the operators' namespace; its value is a package whose folder holds them, or
    ``package:attribute`` where the attribute is a path or a function that returns one.
    """
    return (EntryRoot(Path(__file__).parent / "entries"), *_installed_roots(), *_added)


def load_entry(name: str, *, family: str | None = None, namespace: str | None = None) -> Entry:
    """Return the entry of an op's class, parsing no other file.

    With a ``namespace``, only entries whose operators are of it count.

    :raises ManifestError: there is none, there are two, or it is wrong.
    """
    found = [
        (root, path)
        for root in entry_roots()
        if namespace is None or root.namespace == namespace
        for path in _index(root).get(class_key(name), ())
        if family is None or path.parent.name == family
    ]
    if len(found) == 1:
        root, path = found[0]
        return _load_cached(path, root.namespace)
    where = "any family" if family is None else f"the family {family!r}"
    if not found:
        roots = ", ".join(str(root.path) for root in entry_roots())
        missing = Fault(Path(roots), 0, f"{name} needs an entry in {where}", "none", _nearest(name))
        # It may be in a package that offers its entries wrongly.
        raise ManifestError([missing, *root_faults()])
    apart = len({path.parent.name for _, path in found}) == len(found)
    remedy = (
        "rename the op, or pass family="
        if apart
        else "rename the op, or uninstall what has one of them"
    )
    raise ManifestError(
        [Fault(path, 1, f"{name} has one entry", f"{len(found)}", remedy) for _, path in found]
    )


def load_file(path: str | os.PathLike[str], *, namespace: str = NAMESPACE) -> Entry:
    """Return the entry in one file.

    :raises ManifestError: it cannot be read or is wrong.
    """
    path = Path(path)
    return _read(path, read_text(path), namespace)


def load_text(
    text: str, path: str | os.PathLike[str] = "<entry>", *, namespace: str = NAMESPACE
) -> Entry:
    """Return the entry that ``text`` describes; ``path`` is what faults call it.

    :raises ManifestError: it is wrong.
    """
    return _read(Path(path), text, namespace)


def iter_files(root: EntryRoot) -> Iterator[Path]:
    """Yield the entry files of a root, by family and name."""
    yield from sorted(root.path.glob("*/*.toml"))


def iter_entries() -> Iterator[Entry]:
    """Yield every entry of every root.

    :raises ManifestError: at the first that is wrong; the checks report all.
    """
    for root in entry_roots():
        for path in iter_files(root):
            yield _load_cached(path, root.namespace)


def read_text(path: Path) -> str:
    """Return a file's text.

    :raises ManifestError: it is missing or not UTF-8.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        found = error.strerror or str(error)
        fault = Fault(path, 0, "an entry is a readable file", found, "mend the file, or remove it")
        raise ManifestError([fault]) from None
    return decode(path, content)


def decode(path: Path, content: bytes) -> str:
    """Return the text that a file holds.

    :raises ManifestError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        found = f"byte {content[error.start]:#04x}"
        fault = Fault(path, line, "an entry is UTF-8", found, "save it as UTF-8")
        raise ManifestError([fault]) from None


def parse_text(path: Path, text: str) -> dict[str, Any]:
    """Return the TOML document in ``text``.

    :raises ManifestError: it is empty or no TOML.
    """
    if text.startswith("\ufeff"):
        fault = Fault(
            path, 1, "an entry is UTF-8", "a byte-order mark", "save it without one (not utf-8-sig)"
        )
        raise ManifestError([fault])
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        fault = Fault(path, 1, "an entry is TOML", "values nested too deep", "nest them less")
        raise ManifestError([fault]) from None
    except tomllib.TOMLDecodeError as error:
        message, line = _located(str(error), text)
        raise ManifestError(
            [Fault(path, line, "an entry is TOML", message, "mend the syntax there")]
        ) from None
    except ValueError:
        # The one error that the parser leaves to Python: more digits than it converts.
        number = _ENDLESS.search(text)
        line = text.count("\n", 0, number.start()) + 1 if number else 1
        found = f"one of {len(number[0])} digits" if number else "a longer one"
        fault = Fault(path, line, "a number has 64 bits", found, "write a smaller one")
        raise ManifestError([fault]) from None
    if not document:
        fault = Fault(
            path, 1, "an entry describes an op", "an empty file", "write it, or remove it"
        )
        raise ManifestError([fault])
    return document


def _read(path: Path, text: str, namespace: str) -> Entry:
    document = parse_text(path, text)
    report = Report(path, text)
    entry = examine(document, report, namespace)
    if entry is None or report.faults:
        raise ManifestError(report.sorted())
    return entry


@functools.cache
def _load_cached(path: Path, namespace: str) -> Entry:
    return load_file(path, namespace=namespace)


@functools.cache
def _index(root: EntryRoot) -> dict[str, list[Path]]:
    """Return a root's files by what a class's name and its file's name have in common."""
    index: dict[str, list[Path]] = {}
    for path in iter_files(root):
        index.setdefault(stem_key(path.stem), []).append(path)
    return index


@functools.cache
def _installed_roots() -> tuple[EntryRoot, ...]:
    """Return the roots of installed packages; one that is broken takes only its own ops with it."""
    return tuple(root for _, roots, _ in _offers() for root in roots)


@functools.cache
def _offers() -> tuple[tuple[importlib.metadata.EntryPoint, tuple[EntryRoot, ...], str], ...]:
    """Return each entry point, its roots, and what is wrong with it."""
    import importlib.metadata

    found = []
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            paths, why = _offered(point), "no such folder"
        except Exception as error:
            # Code of somebody else, which may do anything.
            paths, why = [], f"{type(error).__name__}: {error}"
        if not point.name.isidentifier():
            paths, why = [], f"the namespace {point.name!r}, which is no name"
        roots = tuple(EntryRoot(path, point.name) for path in paths if path.is_dir())
        found.append((point, roots, "" if roots else why))
    return tuple(found)


def _offered(point: importlib.metadata.EntryPoint) -> list[Path]:
    import importlib.util

    if point.attr:
        value = point.load()
        return [Path(value() if callable(value) else value)]
    # The package is not imported, nor its parents: they may import torch, or us again.
    top, *inner = point.module.split(".")
    spec = importlib.util.find_spec(top)
    locations = (spec.submodule_search_locations or ()) if spec else ()
    return [Path(location, *inner) for location in locations]


def root_faults() -> list[Fault]:
    """Return what is wrong with the entry points of installed packages."""
    faults = []
    for point, roots, why in _offers():
        if roots and not any(True for root in roots for _ in root.path.glob("*/*.toml")):
            why = "no FAMILY/OP.toml below it"
        if why:
            package = point.dist.name if point.dist else "a package"
            faults.append(
                Fault(
                    Path(package, "entry_points.txt"),
                    0,
                    f"the entry point {point.name} = {point.value} of {GROUP} names a folder of "
                    "entries",
                    why,
                    f"mend it, or uninstall {package}",
                )
            )
    return faults


def _nearest(name: str) -> str:
    import difflib

    known = [key for root in entry_roots() for key in _index(root)]
    close = difflib.get_close_matches(class_key(name), known, n=1)
    if not close:
        return "write one, or install the package that has it"
    path = next(p for root in entry_roots() for p in _index(root).get(close[0], ()))
    return f"did you mean the op of {path.parent.name}/{path.name}?"


def _located(message: str, text: str) -> tuple[str, int]:
    """Split ``… (at line 3, column 7)`` into the message and the line."""
    head, _, place = message.rpartition(" (at ")
    words = place.rstrip(")").replace(",", "").split()
    if head and words[:1] == ["line"]:
        return f"{head} at column {words[-1]}", int(words[1])
    return head or message, text.count("\n") + 1
