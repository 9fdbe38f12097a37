"""What importing tileops-norm gives and costs."""

import subprocess
import sys
from importlib.metadata import version

import tileops.norm
from tileops.core import Op
from tileops.manifest import iter_entries


def test_version_is_the_installed_one() -> None:
    assert tileops.norm.__version__ == version("tileops-norm")


def test_import_leaves_tilelang_alone() -> None:
    """TileLang takes seconds to import and is absent where no kernel is built."""
    code = "import sys, tileops.norm; print('tilelang' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_it_exports_the_ops_that_its_entries_call_implemented() -> None:
    ours = {entry.name for entry in iter_entries() if entry.family == "norm"}
    planned = {entry.name for entry in iter_entries() if entry.status == "planned"}
    exported = {name for name in tileops.norm.__all__ if name != "__version__"}
    assert exported == ours - planned
    assert all(issubclass(getattr(tileops.norm, name), Op) for name in exported)
