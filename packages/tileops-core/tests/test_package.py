"""What importing tileops-core gives and costs."""

import subprocess
import sys
from importlib.metadata import version

import tileops.core


def test_version_is_the_installed_one() -> None:
    assert tileops.core.__version__ == version("tileops-core")


def test_import_leaves_tilelang_alone() -> None:
    """TileLang takes seconds to import and is absent where no kernel is built."""
    code = "import sys, tileops.core; print('tilelang' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
