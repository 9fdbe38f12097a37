"""Keeps each distribution's changelog, which is made of fragments.

A change to what a distribution ships adds a file to its ``changes/``, such as
``+softcap.added.md`` or, after an issue, ``41.fixed.md``, that says in a sentence what a user of
the distribution sees. towncrier puts the fragments into ``CHANGELOG.md`` at a release. Its own
``check`` wants one fragment for the whole repository; here each changed distribution needs one.

    hatch run upkeep:changes check [--base COMMIT]     has each changed distribution a fragment
    hatch run upkeep:changes build FAMILY              make the changelog of its version
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

from tools.git import changed_files, merge_base
from tools.workspace import ROOT, Distribution, distributions, table

__all__ = ["build", "faults", "headings", "main", "unreleased"]

BASES = ("origin/main", "main")
HEADING = re.compile(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="changes", description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="has each changed distribution a fragment")
    check.add_argument("--base", help=f"default: the first there is of {', '.join(BASES)}")
    make = commands.add_parser("build", help="move the fragments of a family into its changelog")
    make.add_argument("family", choices=list(distributions(root)))
    make.add_argument("--date", default=datetime.date.today().isoformat())
    options = parser.parse_args(arguments)
    if options.command == "build":
        return build(distributions(root)[options.family], options.date, root)
    return _check(options.base, root)


def _check(asked: str | None, root: Path) -> int:
    base = asked or next((one for one in BASES if merge_base(root, one)), None)
    files = changed_files(root, base) if base else []
    if files is None:
        print(f"changes: this clone has no commit {base!r} to compare with", file=sys.stderr)
        return 2
    if base is None:
        print(f"changes: there is neither {' nor '.join(BASES)}: only names are checked")
    found = faults(files, root)
    for fault in found:
        print(f"changes: {fault}", file=sys.stderr)
    if not found:
        print("changes: each changed distribution has a fragment")
    return int(bool(found))


def faults(files: list[str], root: Path = ROOT) -> list[str]:
    """What is wrong with the fragments, given the files that a change touches."""
    found = []
    types = [
        one["directory"] for one in table(root / "pyproject.toml")["tool"]["towncrier"]["type"]
    ]
    name = re.compile(rf"(?:\+[\w-]+|[0-9]+)\.(?:{'|'.join(types)})\.md")
    for distribution in distributions(root).values():
        for fragment in unreleased(distribution):
            where = fragment.relative_to(root).as_posix()
            if not name.fullmatch(fragment.name):
                found.append(
                    f"{where} is called +WORDS.TYPE.md or ISSUE.TYPE.md, TYPE one of "
                    f"{', '.join(types)}"
                )
            elif not fragment.read_text("utf-8").strip():
                found.append(f"{where} is empty; say in a sentence what a user sees")
        folder = distribution.folder.relative_to(root).as_posix()
        shipped = [f"{folder}/src/", f"{folder}/pyproject.toml"]
        if distribution.family == "manifest":
            shipped.append("schema/")
        said = {one.relative_to(root).as_posix() for one in unreleased(distribution)}
        said.add(distribution.changelog.relative_to(root).as_posix())
        changed = [file for file in files if file.startswith(tuple(shipped))]
        # A fragment that was taken away says nothing.
        if changed and said.isdisjoint(files):
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            found.append(
                f"{distribution.name} has changed ({changed[0]}{more}), and no fragment says how; "
                f"write {folder}/changes/+WORDS.TYPE.md, TYPE one of {', '.join(types)}"
            )
    return found


def unreleased(distribution: Distribution) -> list[Path]:
    """The fragments that wait for a release."""
    return sorted(path for path in distribution.fragments.glob("*") if path.name != ".gitkeep")


def headings(distribution: Distribution) -> list[str]:
    """The versions that the changelog has, newest first."""
    return [found[1] for found in HEADING.finditer(distribution.changelog.read_text("utf-8"))]


def build(distribution: Distribution, date: str, root: Path = ROOT) -> int:
    """Move the fragments into the changelog, under the version that the distribution is at."""
    version = distribution.version
    if version in headings(distribution):
        print(
            f"changes: {distribution.changelog.relative_to(root)} has {version} already; run "
            f"first: hatch run upkeep:release bump {distribution.family} NEW",
            file=sys.stderr,
        )
        return 1
    command = [sys.executable, "-m", "towncrier", "build", "--yes"]
    command += ["--config", str(root / "pyproject.toml"), "--dir", str(distribution.folder)]
    command += ["--name", distribution.name, "--version", version, "--date", date]
    return subprocess.call(command, cwd=root)


if __name__ == "__main__":
    sys.exit(main())
