"""Version ranges, and the one error when a family reads another manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileops.manifest.__about__ import __version__
from tileops.manifest.versions import VersionSkewError, admits, release, require_manifest


@pytest.mark.parametrize(
    ("specifier", "version", "admitted"),
    [
        ("~=0.1.2", "0.1.2", True),
        ("~=0.1.2", "0.1.9", True),
        ("~=0.1.2", "0.1.1", False),
        ("~=0.1.2", "0.2.0", False),
        ("~=1.2", "1.9.0", True),
        ("~=1.2", "2.0.0", False),
        (">=1.0, <2", "1.5.0", True),
        (">=1.0,<2", "2.0.0", False),
        ("==0.1.0", "0.1.0", True),
        ("==0.1.*", "0.1.7", True),
        ("!=0.1.*", "0.1.7", False),
        ("!=0.1.0", "0.1.1", True),
        (">0.1.0", "0.1.0", False),
        ("<=0.1.0", "0.1.0", True),
        ("", "9.9.9", True),
        (">=0.1", "0.1.0.dev3", True),
    ],
)
def test_admits(specifier: str, version: str, admitted: bool) -> None:
    assert admits(specifier, version) is admitted


def test_what_is_no_version() -> None:
    assert release("v1.2") == (1, 2, 0)
    with pytest.raises(ValueError, match=r"^'new' is no version MAJOR\.MINOR\.PATCH$"):
        release("new")
    with pytest.raises(ValueError, match=r"^'=>1' is no version clause$"):
        admits("=>1", "1.0.0")


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed family that reads a manifest of 0.2."""
    info = tmp_path / "tileops_conv-0.3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tileops-conv\nVersion: 0.3.0\n"
        "Requires-Dist: torch>=2.11\nRequires-Dist: tileops_manifest~=0.2.1; python_version>'3'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "tileops-conv"


def test_another_manifest_is_one_error_with_both_versions_and_the_command(family: str) -> None:
    with pytest.raises(VersionSkewError) as caught:
        require_manifest(family, installed="0.1.0")
    assert str(caught.value) == (
        "tileops-conv 0.3.0 reads tileops-manifest~=0.2.1, and tileops-manifest 0.1.0 is "
        "installed; mend it with: pip install 'tileops-manifest~=0.2.1'"
    )


def test_the_installed_version_is_this_ones(family: str) -> None:
    with pytest.raises(VersionSkewError, match=f"manifest {__version__} is installed"):
        require_manifest(family)


def test_a_manifest_that_fits_is_no_error(family: str) -> None:
    require_manifest(family, installed="0.2.4")


def test_sources_on_the_path_declare_nothing() -> None:
    require_manifest("tileops-not-installed")
