"""Files that are replaced whole: a reader, or an interruption, never meets half of one."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_special", "replace"]


def is_special(path: Path) -> bool:
    """Whether ``path`` is neither a file nor a folder, but a pipe or a device."""
    return path.exists() and not path.is_file() and not path.is_dir()


def replace(path: Path, data: bytes) -> None:
    """Replaces the file in one step, and leaves nothing where that fails.

    Where ``path`` is a link, the file that it leads to; a pipe or a device is written to.

    Raises:
        OSError: the file cannot be written.
    """
    if is_special(path):
        path.write_bytes(data)
        return
    real = Path(os.path.realpath(path))
    temporary = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(real)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
