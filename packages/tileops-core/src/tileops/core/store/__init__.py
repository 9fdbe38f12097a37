"""The store: programs that were built once, on disk, for every later process.

It is a folder: ``kernels`` in ``TILEOPS_CACHE_DIR``, or in ``tileops`` in the user's cache folder
(``XDG_CACHE_HOME``, ``~/.cache``) where that is not set. ``TILEOPS_CACHE_DIR=off``, or empty, turns
it off. Entries are code that is loaded into the process: point it only at a folder whose writers
you trust.

A program that is found is loaded without TileLang and without a compiler. Nothing that is wrong
with the folder or with an entry fails a call: it is logged, and the program is built.

Nothing is evicted. An entry takes 30 to 300 KB, and kernels have dynamic sizes, so a folder grows
with the models that are served and with upgrades, not with traffic; ``tileops cache`` shows its
size and clears it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tileops.core import tilelang_backend
from tileops.core.compilers import nvcc_version
from tileops.core.store.entry import DamagedError, Facts, pack, unpack
from tileops.core.store.lock import locked

__all__ = ["Store", "default_folder", "open_store"]

_log = logging.getLogger("tileops.core.store")
_reported: set[Path] = set()


def default_folder() -> Path | None:
    """The folder of the store by the environment, or None where the store is off.

    It is off too where ``TILEOPS_CACHE_DIR`` leads nowhere, and that is logged.
    """
    named = os.environ.get("TILEOPS_CACHE_DIR")
    if named in ("", "off"):
        return None
    if named is not None:
        try:
            return Path(named).expanduser().absolute() / "kernels"
        except (RuntimeError, OSError) as error:
            # The home of nobody, or relative to a folder that was removed.
            if Path(named) not in _reported:
                _reported.add(Path(named))
                _log.warning("the store is off: TILEOPS_CACHE_DIR is %r: %s", named, error)
            return None
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification has a relative path ignored.
        base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "tileops" / "kernels"


def open_store() -> Store | None:
    """The store by the environment as it is now, or None where it is off."""
    folder = default_folder()
    return None if folder is None else Store(folder)


class Store:
    """A folder of built programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` is, or would be."""
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.so"

    def entries(self) -> list[Path]:
        """The files of all entries, whoever can use them."""
        return sorted(p for p in self.folder.glob("*.so") if not p.name.startswith("."))

    def holds(self, key: str) -> bool:
        """Whether a whole entry of ``key`` is there; it is not loaded."""
        try:
            unpack(self.path(key).read_bytes(), key)
        except (OSError, DamagedError):
            return False
        return True

    def get(self, key: str, *, report: bool = True) -> tilelang_backend.Program | None:
        """The program of ``key``, or None where there is none that can be used.

        One that is damaged is logged, unless ``report`` is false; the caller builds it again.
        """
        path = self.path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain("read", error)
            return None
        try:
            facts = unpack(data, key)
            launch = tilelang_backend.load(path, facts.symbol, data)
        except Exception as error:
            if report:
                _log.warning("the stored kernel %s is not used: %s; it is built again", path, error)
            return None
        return tilelang_backend.Program(
            symbol=facts.symbol,
            launch=launch,
            source=facts.source,
            _write=lambda to: shutil.copyfile(path, to),
        )

    def put(self, key: str, program: Any) -> None:
        """Publishes ``program``: afterwards it is there whole, or not at all and that is logged."""
        path = self.path(key)
        temporary = self.folder / f".{path.stem}.{os.getpid()}.{secrets.token_hex(4)}.so"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(f".{path.stem}.*.so"):
                left.unlink(missing_ok=True)  # by a process that was killed while it wrote
            program.export(str(temporary))
            library = temporary.read_bytes()
            facts = Facts(key, program.symbol, program.source, nvcc_version())
            with temporary.open("ab") as file:
                file.write(pack(library, facts))
            temporary.replace(path)
        except Exception as error:
            self._complain("written", error)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Keeps other processes from building ``key`` meanwhile, where the folder allows a lock."""
        with contextlib.ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(str(self.path(key).with_suffix(".lock"))))
            except OSError as error:
                self._complain("written", error)
            yield

    def clear(self) -> int:
        """Removes every entry and says how many; processes that loaded one keep it.

        Raises:
            OSError: an entry cannot be removed.
        """
        entries = self.entries()
        for entry in entries:
            entry.unlink(missing_ok=True)
        return len(entries)

    def _complain(self, done: str, error: Exception) -> None:
        """Logs what is wrong with the folder, once a process."""
        if self.folder in _reported:
            return
        _reported.add(self.folder)
        _log.warning(
            "kernels cannot be %s in the store %s: %s; this process builds what it needs and goes "
            "on. Set TILEOPS_CACHE_DIR to a folder that can be written, or to 'off'",
            done,
            self.folder,
            error,
        )
