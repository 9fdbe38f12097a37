"""Writes the package that ``docs/own-ops.md`` describes, and runs processes that have it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = Path(__file__).parents[2] / "docs" / "own-ops.md"
_FILE = re.compile(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def files() -> dict[str, str]:
    """The files on the page, by path."""
    return dict(_FILE.findall(PAGE.read_text()))


def install(site: Path, **changes: str) -> Path:
    """Puts the package into ``site`` as an installer would; ``changes`` replaces words in all."""
    for name, text in files().items():
        for old, new in changes.items():
            text, name = text.replace(old, new), name.replace(old, new)
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project = tomllib.loads((site / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    needs = "".join(f"Requires-Dist: {one}\n" for one in project["dependencies"])
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n{needs}"
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
        for group, named in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text(points)
    return site


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``python words...`` where the package is installed."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path, "TILEOPS_CACHE_DIR": str(site / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
