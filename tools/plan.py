"""Says which families a change concerns, and on what each of them is to be tested.

A family is concerned when a file of its own has changed or a family that it needs is concerned.
What all of them are tested with (the root's settings, tests/, tools/, CI) concerns all, and so does
a base that this clone does not have. A page at the root concerns none.

Prints two lines for the CI workflow, each a name and JSON: ``families``, and ``cells``, which are
a family, a Python and a torch to test it with (the manifest is tested without torch).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tools.git import changed_files
from tools.workspace import ROOT, closure, dependants, distributions, pinned

__all__ = ["NEWEST_PYTHON", "cells", "concerned", "main", "oldest"]

NEWEST_PYTHON = "3.13"
"""The newest Python that the families are tested on; the oldest is in their metadata."""

NO_PART = re.compile(r"[A-Z]+\.md|\.gitignore|\.github/dependabot\.yml")
"""Files at the root that no test of a family reads."""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="tools.plan", description=__doc__)
    parser.add_argument(
        "--base", required=True, help="the commit that the change begins from, or nothing"
    )
    base = parser.parse_args(arguments).base
    files = changed_files(root, base)
    if files is None:
        print(f"plan: this clone has no base {base!r}: every family", file=sys.stderr)
    families = concerned(files, root)
    print(f"plan: {', '.join(families) or 'no family is concerned'}", file=sys.stderr)
    plan = {"families": families, "cells": cells(families, root)}
    lines = [f"{name}={json.dumps(value)}\n" for name, value in plan.items()]
    print("".join(lines), end="")
    output = os.environ.get("GITHUB_OUTPUT")
    if output:
        with Path(output).open("a", encoding="utf-8") as stream:
            stream.writelines(lines)
    return 0


def concerned(files: list[str] | None, root: Path = ROOT) -> list[str]:
    """The families that a change of ``files`` concerns; of None, which is not known, all."""
    known = distributions(root)
    if files is None:
        return list(known)
    folders = {f"{one.folder.relative_to(root).as_posix()}/": one.family for one in known.values()}
    changed: set[str] = set()
    for file in files:
        owner = next((family for start, family in folders.items() if file.startswith(start)), None)
        if owner is not None:
            changed.add(owner)
        elif file.startswith("schema/"):
            changed.add("manifest")
        elif not NO_PART.fullmatch(file):
            return list(known)
    return dependants(changed, root)


def cells(families: list[str], root: Path = ROOT) -> list[dict[str, str]]:
    """Each family on the oldest and the newest Python, and with the oldest and the newest torch."""
    known = distributions(root)
    found = []
    for family in families:
        pythons = [oldest(known[family].project["requires-python"]), NEWEST_PYTHON]
        torches = [""]
        if "core" in closure(family, root):
            wanted = map(Requirement, known["core"].project["dependencies"])
            [torch] = [one for one in wanted if one.name == "torch"]
            torches = [f"{oldest(str(torch.specifier))}.0", pinned("torch", root)]
        found += [
            {"family": family, "python": python, "torch": torch}
            for python in pythons
            for torch in torches
        ]
    return found


def oldest(specifier: str) -> str:
    """The version that ``>=`` names.

    Raises:
        ValueError: there is no such clause, or more than one.
    """
    found = [one.version for one in SpecifierSet(specifier) if one.operator == ">="]
    if len(found) != 1:
        raise ValueError(f"{specifier!r} must say its oldest version once, by >=")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
