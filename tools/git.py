"""What a checkout differs in from an earlier commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["changed_files", "git", "merge_base"]


def git(root: Path, *arguments: str) -> str | None:
    """Return what a git command says, or None where it fails or there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip("\n") if done.returncode == 0 else None


def merge_base(root: Path, base: str) -> str | None:
    """Return the newest commit that ``base`` and the checkout share.

    None where ``base`` is no commit that this clone has (a new branch's is all zeros, a shallow
    clone lacks most), or shares none.
    """
    if not base or base.startswith("-"):
        return None
    return git(root, "merge-base", base, "HEAD") or None


def changed_files(root: Path, base: str) -> list[str] | None:
    """Return the files that differ from where the checkout left ``base``, or None: see above.

    Work that is not committed counts, and new files that git does not ignore. Of a file that was
    moved both paths are there: what it was part of has changed too.
    """
    commit = merge_base(root, base)
    if commit is None:
        return None
    differing = git(root, "diff", "--name-only", "--no-renames", "-z", commit)
    untracked = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    if differing is None or untracked is None:
        return None
    return sorted({name for name in (differing + untracked).split("\0") if name})
