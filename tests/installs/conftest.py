"""What the tests of installed wheels share."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.installs.environments import Environment, Wheelhouse, find_uv, finish
from tools.workspace import distributions


@pytest.fixture(scope="session")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work environment's packages without ours, to be put on another environment's path.

    Installing torch once more for each test takes 20 s and a gigabyte.
    """
    folder = tmp_path_factory.mktemp("third-party")
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        ours = path.name.startswith(("tileops", "_tileops", "__editable__", "__pycache__"))
        if not ours and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="session")
def first_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every family's wheel, as this checkout is, at 0.1.0."""
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheels")
    made = Wheelhouse(tmp_path_factory.mktemp("wheelhouse"))
    for family in distributions():
        made.build(family)
    return made.wheels


@pytest.fixture
def house(tmp_path: Path, first_wheels: Path) -> Wheelhouse:
    """A wheelhouse of the test's own, so that what it adds is seen by no other."""
    made = Wheelhouse(tmp_path / "house")
    shutil.copytree(first_wheels, made.wheels)
    return made


@pytest.fixture
def environment(tmp_path: Path, house: Wheelhouse, third_party: Path) -> Callable[..., Environment]:
    """Makes a virtual environment of a name."""
    uv = find_uv()
    if uv is None:
        pytest.skip("needs uv, which makes environments")

    def make(name: str = "environment") -> Environment:
        made = Environment(tmp_path / name, house, uv)
        finish([uv, "venv", "--python", sys.executable, str(made.folder)], True)
        [packages] = made.folder.glob("lib/python*/site-packages")
        (packages / "third_party.pth").write_text(f"{third_party}\n", "utf-8")
        return made

    return make
