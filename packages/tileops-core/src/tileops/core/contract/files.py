"""Where a run's reports go: asked before the run, which may take long, and written after it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tileops.core import files
from tileops.core.errors import ContractError

__all__ = ["replace", "require_writable"]


def require_writable(paths: Iterable[Path | None]) -> None:
    """Requires that a file can be written at each of the paths, and that they are different files.

    Raises:
        ContractError: one cannot be, or two are one.
    """
    seen: set[str] = set()
    for path in paths:
        if path is None:
            continue
        real = os.path.realpath(path)
        folder = Path(real).parent
        if path.is_dir():
            raise ContractError(f"{path} cannot be written: it is a folder; name a file in it")
        if not folder.is_dir():
            raise ContractError(f"{path} cannot be written: make the folder {folder} first")
        # A file is replaced, which its folder must allow; a pipe or a device is written to.
        if not os.access(path if files.is_special(path) else folder, os.W_OK):
            raise ContractError(f"{path} cannot be written: you may not write to {folder}")
        if real in seen:
            raise ContractError(f"{path} is named twice; give each report a file of its own")
        seen.add(real)


def replace(path: Path, data: bytes) -> None:
    """As :func:`tileops.core.files.replace`.

    Raises:
        ContractError: the file cannot be written.
    """
    try:
        files.replace(path, data)
    except OSError as error:
        raise ContractError(f"{path} cannot be written: {error}") from error
