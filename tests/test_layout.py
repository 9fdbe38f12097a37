"""The distributions fit together: one namespace, whole folders, versions that agree."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

# A machine that tests installed wheels need not be able to build them.
pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheels")

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tools import changes, new_op, ranges, wheels
from tools.workspace import ROOT, distributions, table

DISTRIBUTIONS = distributions()
REQUIRED = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml")

each_family = pytest.mark.parametrize("family", DISTRIBUTIONS)


def test_the_namespace_belongs_to_no_distribution() -> None:
    """One ``tileops/__init__.py`` would hide every other family that is installed beside it."""
    assert [
        str(path) for one in DISTRIBUTIONS.values() for path in one.folder.glob("src/tileops/*.py")
    ] == []


def test_a_package_is_of_one_distribution() -> None:
    """Uninstalling one of two would take the other's files along."""
    packages = [(path.name, one.name) for one in DISTRIBUTIONS.values() for path in one.packages]
    assert len({package for package, _ in packages}) == len(packages)
    assert {one.package.name for one in DISTRIBUTIONS.values()} <= {name for name, _ in packages}


@each_family
def test_a_distribution_is_whole(family: str) -> None:
    one = DISTRIBUTIONS[family]
    needed = [one.folder / name for name in REQUIRED]
    needed += [one.package / name for name in ("__init__.py", "__about__.py", "py.typed")]
    assert [str(path.relative_to(ROOT)) for path in needed if not path.is_file()] == []
    assert list((one.folder / "tests").glob("test_*.py")) != []


def test_the_settings_of_the_workspace_name_every_distribution() -> None:
    """None of these lists can be computed by the tool that reads it."""
    settings = table(ROOT / "pyproject.toml")["tool"]
    environments = settings["hatch"]["envs"]
    for name in ("build", "isolated"):
        [matrix] = environments[name]["matrix"]
        assert set(matrix["family"]) == set(DISTRIBUTIONS), name
    sources = {(one.folder / "src").relative_to(ROOT) for one in DISTRIBUTIONS.values()}
    roots = {f"$MYPY_CONFIG_FILE_DIR/{source.as_posix()}" for source in sources}
    assert set(settings["mypy"]["mypy_path"]) == roots
    readme = (ROOT / "README.md").read_text("utf-8")
    unnamed = [one.name for one in DISTRIBUTIONS.values() if f"`{one.name}`" not in readme]
    assert unnamed == []


def test_nothing_is_left_to_fill() -> None:
    """``tools/new_op`` and ``tools/new_family`` mark what is to be written."""
    left = new_op.unfilled()
    assert not left, "\n".join(left)


@each_family
def test_the_licence_matches_the_root_one(family: str) -> None:
    """Each folder has a copy, since a source distribution cannot reach above itself."""
    assert (DISTRIBUTIONS[family].folder / "LICENSE").read_bytes() == (
        ROOT / "LICENSE"
    ).read_bytes()


def test_versions_and_ranges_fit_together() -> None:
    """Among them an environment that was made before a version bump."""
    assert ranges.faults() == []


@each_family
def test_the_changelog_speaks_of_the_version_or_fragments_wait(family: str) -> None:
    one = DISTRIBUTIONS[family]
    assert one.version in changes.headings(one)[:1] or changes.unreleased(one)


def test_fragments_are_called_and_filled_as_they_must_be() -> None:
    assert changes.faults([]) == []


@pytest.mark.parametrize("family", [family for family in DISTRIBUTIONS if family != "manifest"])
def test_a_family_refuses_a_manifest_outside_its_range(family: str) -> None:
    """One error, with both versions and the mend, before any entry is read."""
    [wanted] = [one for one in DISTRIBUTIONS[family].siblings if one.name == "tileops-manifest"]
    program = (
        "import tileops.manifest.__about__ as about; about.__version__ = '9.0.0'; "
        f"import tileops.{family}"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stderr.splitlines()[-1] == (
        f"tileops.manifest.versions.VersionSkewError: tileops-{family} "
        f"{version('tileops-' + family)} needs {wanted}, and tileops-manifest 9.0.0 is installed; "
        f"mend it with: pip install '{wanted}', or install a tileops-{family} that fits"
    )


@each_family
def test_a_family_imports(family: str) -> None:
    module = importlib.import_module(f"tileops.{family}")
    assert module.__version__ == DISTRIBUTIONS[family].version


@each_family
def test_a_wheel_from_the_sdist_holds_what_is_its_own(family: str, tmp_path: Path) -> None:
    """Users get wheels that were built from the source distribution, not from this checkout."""
    one = DISTRIBUTIONS[family]
    wheel = build_wheel(one.folder, tmp_path)
    assert wheels.faults(wheel, one) == []
    assert wheels.metadata_version(wheel) == one.version
    held = wheels.expected(one)
    assert f"tileops/{family}/__init__.py" in held
    if family == "manifest":
        assert "tileops/manifest/schema/op.schema.json" in held
        assert "tileops/manifest/entries/norm/rms_norm_fwd.toml" in held


def build_wheel(folder: Path, output: Path) -> Path:
    """The wheel of the sdist of a folder."""
    [sdist] = SdistBuilder(str(folder)).build(directory=str(output))
    with tarfile.open(sdist) as archive:
        archive.extractall(output, filter="data")
    unpacked = output / Path(sdist).name.removesuffix(".tar.gz")
    [wheel] = WheelBuilder(str(unpacked)).build(directory=str(output), versions=["standard"])
    return Path(wheel)
