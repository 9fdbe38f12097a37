"""Tests one family as a user has it: from its wheel, with only the wheels that it depends on.

``hatch run isolated:test`` runs this in an environment of each family's own, after
``hatch run build:all`` has filled ``dist/``. A family that leans on a sibling which it does not
declare passes every test in the shared environment and fails here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


def main(family: str, pytest_arguments: list[str]) -> int:
    """Install the family's wheels, check what came with them and run the family's tests."""
    needed = closure(f"tileops-{family}")
    wheels = [wheel(name) for name in needed]
    # The same version may have been built anew since the last run.
    again = [f"--reinstall-package={name}" for name in needed]
    install = [os.environ["HATCH_UV"], "pip", "install", "--quiet", "--python", sys.executable]
    subprocess.run([*install, *again, *map(str, wheels)], check=True)
    found = installed()
    if found != set(needed):
        print(f"isolated: expected {sorted(needed)}, found {sorted(found)}", file=sys.stderr)
        return 1
    print(f"isolated: tileops-{family} with {', '.join(sorted(found))}", flush=True)
    tests = folder(f"tileops-{family}") / "tests"
    return subprocess.call([sys.executable, "-m", "pytest", *pytest_arguments, tests], cwd=ROOT)


def folder(distribution: str) -> Path:
    """Return where a distribution of this repository has its ``pyproject.toml``."""
    return ROOT / ("manifest" if distribution == "tileops-manifest" else f"packages/{distribution}")


def closure(distribution: str) -> list[str]:
    """Return the distribution and, each once, all of ours that it needs."""
    needed = [distribution]
    for name in needed:
        project = tomllib.loads((folder(name) / "pyproject.toml").read_text("utf-8"))["project"]
        for requirement in map(Requirement, project["dependencies"]):
            sibling = canonicalize_name(requirement.name)
            if sibling.startswith("tileops-") and sibling not in needed:
                needed.append(sibling)
    return needed


def wheel(distribution: str) -> Path:
    """Return the one wheel of a distribution in ``dist/``.

    Raises:
        SystemExit: There is none, or wheels of several versions lie there.
    """
    found = sorted((ROOT / "dist").glob(f"{distribution.replace('-', '_')}-*.whl"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        sys.exit(
            f"isolated: dist/ must hold one wheel of {distribution}; found: {names}. "
            "Empty it and run: hatch run build:all"
        )
    return found[0]


def installed() -> set[str]:
    """Return the names of our distributions in this environment."""
    names = {canonicalize_name(each.metadata["Name"]) for each in distributions()}
    return {name for name in names if name.startswith("tileops-")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
