"""What a stored program is found by: all that its build read.

A key is a text, so that an entry can be checked against it and read by people. It holds the kernel
and the identity that the kernel gives its build, a fingerprint of the Python sources that build
it, the versions of TileLang and TVM-FFI, and the machine of the host code.

Not in it: nvcc's version, because a process that has no nvcc must find what one that has it built
(the version is recorded in the entry); Python's and torch's versions, because a program calls
neither; and the device, because an identity holds the architecture.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import torch

from tileops.core import tilelang_backend
from tileops.core.errors import DefinitionError
from tileops.core.store.entry import FORMAT

__all__ = ["UnkeyedError", "key_text", "spell_identity"]


class UnkeyedError(Exception):
    """A kernel's programs have no key that would be right; the message says why."""


def spell_identity(kernel: type, identity: Hashable) -> str:
    """``identity`` as a text: the same in every process, and different for different identities.

    It may hold numbers, strings, bools, None, dtypes, devices, members of enumerations, and tuples
    and frozen dataclasses of these.

    Raises:
        DefinitionError: it holds something else, whose text says nothing or changes.
    """
    try:
        return _spell(identity)
    except _NoTextError as error:
        raise DefinitionError(
            f"{kernel.__module__}.{kernel.__qualname__}: the identity that entry_for returns holds "
            f"{error.args[0]!r}, which has no text that is the same in every process; let it hold "
            f"numbers, strings, dtypes, enumerations, and tuples and frozen dataclasses of them"
        ) from None


class _NoTextError(Exception):
    pass


def _spell(value: Any) -> str:
    if value is None or type(value) in (bool, int, float, str, bytes):
        return repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, tuple):
        inner = "".join(f"{_spell(item)}, " for item in value)
        return f"({inner})" if type(value) is tuple else f"{type(value).__qualname__}({inner})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f"{f.name}={_spell(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__qualname__}({', '.join(fields)})"
    raise _NoTextError(value)


def key_text(kernel: type, spelling: str) -> str:
    """The key of the program that ``kernel`` builds for the identity spelt ``spelling``.

    Raises:
        UnkeyedError: what the kernel is built from cannot be told for certain.
    """
    lines = {
        "format": str(FORMAT),
        "kernel": f"{kernel.__module__}.{kernel.__qualname__}",
        "identity": spelling,
        "sources": _sources(kernel),
        **_versions(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items())


@functools.cache
def _versions() -> dict[str, str]:
    found = {}
    for name in ("tilelang", "apache-tvm-ffi"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _sources(kernel: type) -> str:
    """A fingerprint of the Python files that build ``kernel``'s programs.

    They are those of the topmost package that holds the kernel (of ``tileops.norm``, since
    ``tileops`` has no files of its own), for one op's kernels may use another's pieces, and of the
    module that builds.
    """
    module = sys.modules.get(kernel.__module__)
    if getattr(module, "__file__", None) is None:
        raise UnkeyedError("it is defined in no file")
    folder = _topmost(kernel.__module__)
    assert module is not None
    files = [Path(str(module.__file__))] if folder is None else sorted(folder.rglob("*.py"))
    files.append(Path(tilelang_backend.__file__))
    try:
        facts = tuple((str(file), os.stat(file).st_mtime) for file in files)
        # What this process imported must be what the files say, or an old program would be stored
        # under new sources, for every later process to run.
        changed = [file for file, mtime in facts if mtime > kernel.__dict__["_defined"]]
        if changed:
            raise UnkeyedError(f"{changed[0]} was changed after the kernel was imported")
        return _fingerprint(facts, folder)
    except OSError as error:
        raise UnkeyedError(f"its sources cannot be read: {error}") from error


@functools.lru_cache(maxsize=64)
def _fingerprint(facts: tuple[tuple[str, float], ...], folder: Path | None) -> str:
    digest = hashlib.sha256()
    for file, _ in facts:
        path = Path(file)
        inside = folder is not None and path.is_relative_to(folder)
        name = str(path.relative_to(folder)) if inside and folder is not None else path.name
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _topmost(module: str) -> Path | None:
    """The folder of the outermost regular package around ``module``; None where there is none."""
    parts = module.split(".")
    for n in range(1, len(parts) + 1):
        package = sys.modules.get(".".join(parts[:n]))
        file = getattr(package, "__file__", None)
        if file is not None and Path(file).name == "__init__.py":
            return Path(file).parent
    return None
