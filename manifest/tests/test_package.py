"""What importing tileops-manifest gives and costs."""

import subprocess
import sys
from importlib.metadata import version

import tileops.manifest


def test_version_is_the_installed_one() -> None:
    assert tileops.manifest.__version__ == version("tileops-manifest")


def test_import_leaves_torch_alone() -> None:
    """A tool that only reads the manifest must not pay for torch."""
    code = "import sys, tileops.manifest; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
