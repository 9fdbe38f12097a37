"""Version ranges, and the one error when a family reads another manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tileops.manifest.__about__ import __version__
from tileops.manifest.versions import VersionSkewError, admits, release, require_siblings


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


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes the metadata of a distribution, as an installer leaves it."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, version: str, *requirements: str) -> None:
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
        (info / "METADATA").write_text("\n".join(lines) + "\n")

    return make


def test_another_manifest_is_one_error_with_both_versions_and_the_command(
    install: Install,
) -> None:
    install("tileops-conv", "0.3.0", "torch>=2.11", "tileops_manifest~=9.2.1; python_version>'3'")
    with pytest.raises(VersionSkewError) as caught:
        require_siblings("tileops-conv")
    assert str(caught.value) == (
        f"tileops-conv 0.3.0 needs tileops-manifest~=9.2.1, and tileops-manifest {__version__} is "
        "installed; mend it with: pip install 'tileops-manifest~=9.2.1', or install a tileops-conv "
        "that fits"
    )


def test_all_siblings_that_do_not_fit_are_named_at_once(install: Install) -> None:
    """A second attempt for each of them would be one too many."""
    install("tileops-conv", "0.3.0", "tileops-conv-base~=0.2.0", "tileops-absent~=0.1.0")
    install("tileops-conv-base", "0.3.1")
    with pytest.raises(VersionSkewError) as caught:
        require_siblings("tileops-conv")
    assert str(caught.value) == (
        "tileops-conv 0.3.0 needs tileops-conv-base~=0.2.0, and tileops-conv-base 0.3.1 is "
        "installed; it needs tileops-absent~=0.1.0, and tileops-absent is not installed; mend it "
        "with: pip install 'tileops-conv-base~=0.2.0' 'tileops-absent~=0.1.0', or install a "
        "tileops-conv that fits"
    )


def test_siblings_that_fit_are_no_error(install: Install) -> None:
    install(
        "tileops-conv",
        "0.3.0",
        "tileops-conv-base~=0.3.0",
        "tileops-manifest>=0",
        "tileops-plots~=2.0; extra == 'plots'",
        "tileops-conv-base===0.3.1+local",
    )
    install("tileops-conv-base", "0.3.1")
    require_siblings("tileops-conv")


def test_sources_on_the_path_have_no_version_and_declare_nothing(
    install: Install, tmp_path: Path
) -> None:
    install("tileops-conv", "0.3.0", "tileops-conv-sources~=0.2.0")
    require_siblings("tileops-not-installed")
    with pytest.raises(VersionSkewError, match="tileops-conv-sources is not installed"):
        require_siblings("tileops-conv")
    import tileops

    (tmp_path / "conv_sources").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tileops, "__path__", [*tileops.__path__, str(tmp_path)])
        require_siblings("tileops-conv")
