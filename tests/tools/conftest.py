"""A repository of one's own to try the tools on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.workspace import ROOT, distributions

Commit = Callable[..., str]

NEWEST = "<!-- The newest release is below. -->\n"

PARTS = ("manifest", "packages", "schema", "tools", "pyproject.toml", "LICENSE", "README.md")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of what the tools read of this repository, which a test may change."""
    target = tmp_path / "repository"
    target.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "node_modules")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target / part, ignore=ignore)
        else:
            shutil.copy(ROOT / part, target / part)
    for one in distributions(target).values():
        # git keeps no empty folder, which a release leaves.
        one.fragments.mkdir(exist_ok=True)
    return target


@pytest.fixture
def repository(copied: Path) -> Path:
    """The copy with every distribution at 0.1.0 and unreleased, whatever has been released since.

    Its packages are not to be imported: what is installed may be at other versions.
    """
    for one in distributions(copied).values():
        (one.package / "__about__.py").write_text('__version__ = "0.1.0"\n')
        settings = one.folder / "pyproject.toml"
        ranges = re.sub(r'"(tileops-[a-z-]+)~=[^"]*"', r'"\1~=0.1.0"', settings.read_text())
        settings.write_text(ranges)
        before, marker, _ = one.changelog.read_text().partition(NEWEST)
        one.changelog.write_text(before + marker)
    return copied


@pytest.fixture
def commit(repository: Path) -> Commit:
    """Commits all that there is, and returns the commit."""
    if shutil.which("git") is None:
        pytest.skip("needs git")

    def run(*arguments: str) -> str:
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        command = ["git", "-C", str(repository), *who, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def make(tag: str | None = None) -> str:
        run("add", "--all")
        run("commit", "--quiet", "--allow-empty", "--message", "A step")
        if tag is not None:
            run("tag", tag)
        return run("rev-parse", "HEAD")

    run("init", "--quiet", "--initial-branch=work")
    return make
