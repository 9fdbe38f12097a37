"""Installs a package whose ops are at fault in ways that only fresh processes show.

It is found as any family is, by its distribution's entry points.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

OPS = '''
import os
import uuid
import weakref

from planted_good import CASES
from planted_declare import X, Y, case, entry, twice_op
from tileops.core import Op
from tileops.core.contract import register
from tileops.core.instances import live

PROCESS = os.getpid()


def drifts(self, *, target=None):
    """A key that is another in each process."""
    Op.__init__(self, target=target)
    if "#" in self._key:
        key = f"{self._description}#{uuid.uuid4().int}"
        live[key] = live.pop(self._key)
        self._key = key


def misses(self, x):
    """A graph that is another in each process, under an equal key."""
    return self.sub(x)[: 10**6 + PROCESS]


def holds_one(self, *, target=None):
    Op.__init__(self, target=target)
    self.sub = GoodFwdOp(target=target)


def is_lost(self, *, target=None):
    """What a program holds is known as long as this instance lives."""
    Op.__init__(self, target=target)
    self._description = f"{type(self).__name__}@0000()"
    live[self._description] = weakref.ref(self)


def dies(self, x):
    os._exit(3)


COMPOSITION = """
[[composition]]
op = "PlantedGoodFwdOp"
"""
GoodFwdOp = twice_op("PlantedGoodFwdOp", __module__=__name__)
NoCaseFwdOp = twice_op("PlantedNoCaseFwdOp", __module__=__name__)
DriftFwdOp = twice_op("PlantedDriftFwdOp", __module__=__name__, __init__=drifts)
LostFwdOp = twice_op("PlantedLostFwdOp", __module__=__name__, __init__=is_lost)
DyingFwdOp = twice_op("PlantedDyingFwdOp", __module__=__name__, forward=dies)
MissFwdOp = type(
    "PlantedMissFwdOp",
    (Op,),
    {"__module__": __name__, "__init__": holds_one, "forward": misses},
    entry=entry("PlantedMissFwdOp", X, Y, COMPOSITION),
)
for cls in (GoodFwdOp, DriftFwdOp, LostFwdOp, MissFwdOp, DyingFwdOp):
    register(case(cls))
register(case(DyingFwdOp, "again"))
for one in CASES.values():
    register(one)
'''

POINTS = """
[tileops.families]
contracts = planted_ops

[tileops.contracts]
contracts = planted_ops
elsewhere = no_such_module
leaving = planted_leaving
"""

LEAVING = """
import sys

sys.exit("no licence on this machine")
"""


def install(site: Path) -> Path:
    """Puts the package into ``site`` as an installer would."""
    (site / "planted_ops.py").write_text(OPS)
    (site / "planted_leaving.py").write_text(LEAVING)
    for name in ("declare", "good"):
        source = (HERE / f"{name.replace('good', 'good_ops')}.py").read_text()
        text = source.replace("from .declare", "from planted_declare")
        (site / f"planted_{name}.py").write_text(text)
    info = site / "planted_ops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-ops\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return site


def run(site: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python words...`` where the package is installed."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=300,
    )
