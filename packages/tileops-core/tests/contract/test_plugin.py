"""The pytest plugin: nothing without its option, a test for each check with it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from .site_ops import install, run

# Where core was installed before it had a plugin, it is named instead.
THERE = any(point.value == "tileops.pytest_plugin" for point in entry_points(group="pytest11"))
PYTEST = ("-m", "pytest", *(() if THERE else ("-p", "tileops.pytest_plugin")), "-q")

PLAIN = """
import sys

def test_nothing_was_imported():
    assert "torch" not in sys.modules
    assert "tileops.core" not in sys.modules
"""


def test_the_distribution_offers_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tileops-contract": "tileops.pytest_plugin"}


def pytest_in(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(site, *PYTEST, "-p", "no:cacheprovider", *words)


def test_without_its_option_it_imports_nothing(tmp_path: Path) -> None:
    """Everybody's runs load it."""
    (tmp_path / "test_plain.py").write_text(PLAIN)
    done = pytest_in(tmp_path)
    assert done.stdout.startswith(".")
    assert "1 passed" in done.stdout


def test_each_check_of_each_case_is_a_test(tmp_path: Path) -> None:
    site = install(tmp_path)
    option = "--tileops-contract"
    words = (option, f"{option}-family", "contracts", f"{option}-device", "cpu", "-rfs")
    chosen = "Good and (zero-rows or cuda-graph) or has-case"
    done = pytest_in(site, *words, "-k", chosen)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert (
        "PlantedNoCaseFwdOp: has-case: PlantedNoCaseFwdOp has no compile case; register one in the "
        "module that its family's entry point of tileops.contracts names, and install the family "
        "again where that point is new"
    ) in lines
    name = "tileops-contract::PlantedNoCaseFwdOp::has-case"
    assert [line for line in lines if line.startswith(f"FAILED {name}")] != []
    assert any(
        line.startswith("SKIPPED [1] ")
        and line.endswith(
            "PlantedGoodFwdOp-float32 on cpu by reference: cuda-graph: not applicable: needs a "
            "CUDA device, and the call is on cpu"
        )
        for line in lines
    )
    # A case for each of eleven ops, and the zero rows of one.
    assert "1 failed, 12 passed, 1 skipped" in lines[-1]


def test_a_run_whose_checks_are_all_skipped_is_no_success(tmp_path: Path) -> None:
    """As ``tileops contract`` has it: a target that serves no case proves nothing."""
    site, option = install(tmp_path), "--tileops-contract"
    words = (option, f"{option}-family", "contracts", f"{option}-device", "cpu")
    one = ("-k", "PlantedGoodFwdOp and (zero-rows or cuda-graph)")
    done = pytest_in(site, *words, f"{option}-target", "tilelang", *one)
    assert done.returncode == 5, done.stdout
    assert (
        "--tileops-contract: nothing was checked: all 2 checks of cases were skipped, and -rs "
        "says why"
    ) in done.stdout.splitlines()
    done = pytest_in(site, *words, *one)
    assert done.returncode == 0, done.stdout
    assert "nothing was checked" not in done.stdout


def test_a_family_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "--tileops-contract", "--tileops-contract-family", "nothing")
    assert done.returncode == 4
    assert "ERROR: --tileops-contract: there is no family 'nothing'; there are: " in done.stderr
