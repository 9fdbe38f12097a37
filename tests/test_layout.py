"""The distributions fit together: one namespace, whole folders, versions that agree."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

# A machine that tests installed wheels need not be able to build them.
pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheels")

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "manifest": ROOT / "manifest",
    **{path.name.removeprefix("tileops-"): path for path in sorted(ROOT.glob("packages/*"))},
}
# pytest imports every plugin that is installed, so ours is where importing it imports no torch.
BESIDE = {"core": ("tileops/pytest_plugin/",)}
REQUIRED = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml")

each_family = pytest.mark.parametrize("family", FOLDERS)


def project(family: str) -> dict[str, Any]:
    text = (FOLDERS[family] / "pyproject.toml").read_text("utf-8")
    table: dict[str, Any] = tomllib.loads(text)["project"]
    return table


def package(family: str) -> Path:
    return FOLDERS[family] / "src" / "tileops" / family


def stated_version(family: str) -> str:
    namespace: dict[str, str] = {}
    exec((package(family) / "__about__.py").read_text("utf-8"), namespace)
    return namespace["__version__"]


def sibling_requirements() -> Iterator[tuple[str, Requirement]]:
    for family in FOLDERS:
        for requirement in map(Requirement, project(family)["dependencies"]):
            if requirement.name.startswith("tileops-"):
                yield family, requirement


def test_the_namespace_belongs_to_no_distribution() -> None:
    """One ``tileops/__init__.py`` would hide every other family that is installed beside it."""
    assert [
        str(path) for folder in FOLDERS.values() for path in folder.glob("src/tileops/*.py")
    ] == []


@each_family
def test_a_distribution_is_whole(family: str) -> None:
    needed = [FOLDERS[family] / name for name in REQUIRED]
    needed += [package(family) / name for name in ("__init__.py", "__about__.py", "py.typed")]
    assert [str(path.relative_to(ROOT)) for path in needed if not path.is_file()] == []
    assert list((FOLDERS[family] / "tests").glob("test_*.py")) != []


@each_family
def test_the_licence_matches_the_root_one(family: str) -> None:
    """Each folder has a copy, since a source distribution cannot reach above itself."""
    assert (FOLDERS[family] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each_family
def test_the_installed_version_is_the_stated_one(family: str) -> None:
    """An environment that was made before a version bump still reports the old version."""
    assert version(f"tileops-{family}") == stated_version(family)


@each_family
def test_the_changelog_speaks_of_the_version(family: str) -> None:
    lines = (FOLDERS[family] / "CHANGELOG.md").read_text("utf-8").splitlines()
    headings = [line.split()[1] for line in lines if line.startswith("## ")]
    assert headings[0] == stated_version(family)


def test_sibling_ranges_admit_the_siblings() -> None:
    """A bump that leaves a range behind makes a set of wheels that pip refuses to install."""
    refused = [
        f"tileops-{family} requires {requirement}, which is at {stated}"
        for family, requirement in sibling_requirements()
        if (stated := stated_version(requirement.name.removeprefix("tileops-")))
        not in requirement.specifier
    ]
    assert refused == []


@pytest.mark.parametrize("family", [family for family in FOLDERS if family != "manifest"])
def test_a_family_refuses_a_manifest_outside_its_range(family: str) -> None:
    """One error, with both versions and the mend, before any entry is read."""
    program = (
        "import tileops.manifest.__about__ as about; about.__version__ = '9.0.0'; "
        f"import tileops.{family}"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stderr.splitlines()[-1] == (
        f"tileops.manifest.versions.VersionSkewError: tileops-{family} "
        f"{version('tileops-' + family)} "
        "reads tileops-manifest~=0.1.0, and tileops-manifest 9.0.0 is installed; mend it with: "
        "pip install 'tileops-manifest~=0.1.0'"
    )


@each_family
def test_a_family_imports(family: str) -> None:
    module = importlib.import_module(f"tileops.{family}")
    assert module.__version__ == stated_version(family)


@each_family
def test_a_wheel_from_the_sdist_holds_what_is_its_own(family: str, tmp_path: Path) -> None:
    """Users get wheels that were built from the source distribution, not from this checkout."""
    stem = f"tileops_{family}-{stated_version(family)}"
    [sdist] = SdistBuilder(str(FOLDERS[family])).build(directory=str(tmp_path))
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [wheel] = WheelBuilder(str(tmp_path / stem)).build(
        directory=str(tmp_path), versions=["standard"]
    )
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())

    info = f"{stem}.dist-info/"
    code = {name for name in held if not name.startswith(info)}
    own = (f"tileops/{family}/", *BESIDE.get(family, ()))
    assert {name for name in code if not name.startswith(own)} == set()
    assert code == {
        path.relative_to(FOLDERS[family] / "src").as_posix()
        for path in (FOLDERS[family] / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | shipped_schemas(family)
    assert {f"{info}licenses/LICENSE", f"{info}METADATA"} <= held


def shipped_schemas(family: str) -> set[str]:
    if family != "manifest":
        return set()
    schemas = {f"tileops/manifest/schema/{path.name}" for path in ROOT.glob("schema/*.json")}
    assert schemas
    return schemas
