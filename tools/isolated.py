"""Tests one family as a user has it: from its wheel, with only the wheels that it depends on.

``hatch run isolated:test`` runs this in an environment of each family's own, after
``hatch run build:all`` has filled ``dist/``. A family that leans on a sibling which it does not
declare passes every test in the shared environment and fails here.

``TILEOPS_TORCH`` names another version of torch than the one that the work environment pins.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions as installed_distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from tools import wheels
from tools.workspace import ROOT, Distribution, closure, distributions, pinned

__all__ = ["main"]


def main(family: str, pytest_arguments: list[str]) -> int:
    """Install the family's wheels, check what came with them, run its tests and its contract."""
    known = distributions()
    needed = [known[name] for name in closure(family)]
    install(needed)
    names = {distribution.name for distribution in needed}
    found = installed()
    if found != names:
        print(f"isolated: expected {sorted(names)}, found {sorted(found)}", file=sys.stderr)
        return 1
    print(f"isolated: tileops-{family} with {', '.join(sorted(found))}", flush=True)
    tests = known[family].folder / "tests"
    command = [sys.executable, "-m", "pytest", *pytest_arguments]
    failed = subprocess.call([*command, tests], cwd=ROOT)
    if "tileops.contracts" in known[family].project.get("entry-points", {}):
        failed = subprocess.call(contract(family), cwd=ROOT) or failed
    return failed


def install(needed: list[Distribution]) -> None:
    """Install the wheels of ``needed`` and, where core is among them, the torch that is asked for.

    Raises:
        SystemExit: A wheel is missing, stale or not what it should be.
    """
    found = [wheel(distribution) for distribution in needed]
    # The same version may have been built anew since the last run.
    again = [f"--reinstall-package={distribution.name}" for distribution in needed]
    command = [os.environ["HATCH_UV"], "pip", "install", "--quiet", "--python", sys.executable]
    command += [*again, *map(str, found)]
    if "tileops-core" in [distribution.name for distribution in needed]:
        command.append(f"torch=={os.environ.get('TILEOPS_TORCH') or pinned('torch')}")
    subprocess.run(command, check=True)


def wheel(distribution: Distribution) -> Path:
    """Return the one wheel of a distribution in ``dist/``.

    Raises:
        SystemExit: There is none, there are several, or it is not what its distribution is.
    """
    name = distribution.name.replace("-", "_")
    found = sorted((ROOT / "dist").glob(f"{name}-*.whl"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        sys.exit(
            f"isolated: dist/ must hold one wheel of {distribution.name}; found: {names}. "
            "Run: hatch run build:all"
        )
    said = wheels.metadata_version(found[0])
    if said != distribution.version:
        sys.exit(
            f"isolated: dist/ holds {distribution.name} {said}, and its code is at "
            f"{distribution.version}. Run: hatch run build:all"
        )
    wrong = wheels.faults(found[0], distribution)
    if wrong:
        sys.exit("isolated: " + "; ".join(wrong))
    return found[0]


def contract(family: str) -> list[str]:
    """The command that runs the family's contract."""
    return [sys.executable, "-m", "tileops.core", "contract", "--family", family]


def installed() -> set[str]:
    """Return the names of our distributions in this environment."""
    names = {canonicalize_name(each.metadata["Name"]) for each in installed_distributions()}
    return {name for name in names if name.startswith("tileops-")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
