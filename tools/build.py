"""Builds one distribution into ``dist/``: its sdist, and its wheel from that sdist.

``hatch run build:all`` runs this for each. What an earlier version left there goes first: the tests
of wheels, and a release, take what lies in ``dist/``.
"""

from __future__ import annotations

import subprocess
import sys

from tools.workspace import ROOT, distributions

__all__ = ["main"]


def main(family: str) -> int:
    distribution = distributions()[family]
    output = ROOT / "dist"
    for old in output.glob(f"{distribution.name.replace('-', '_')}-*"):
        old.unlink()
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output)]
    return subprocess.call([*command, str(distribution.folder)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
