"""Versions that do not fit together are found, each by name."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs hatchling, which reads the versions of wheels")

from tools import ranges
from tools.workspace import distributions


def set_version(repository: Path, family: str, version: str) -> None:
    about = distributions(repository)[family].package / "__about__.py"
    about.write_text(f'__version__ = "{version}"\n')


def nothing_installed(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


def test_a_range_that_a_bump_leaves_behind_is_named(repository: Path) -> None:
    """pip would refuse the set of wheels, at the user's."""
    set_version(repository, "norm", "0.9.0")
    [fault] = ranges.sibling_faults(repository)
    assert fault.startswith("tileops-composite requires tileops-norm~=")
    assert fault.endswith(
        ", and tileops-norm is at 0.9.0; write tileops-norm~=0.9.0 in "
        "packages/tileops-composite/pyproject.toml"
    )


def test_a_sibling_that_is_nowhere_is_named(repository: Path) -> None:
    settings = repository / "packages" / "tileops-norm" / "pyproject.toml"
    settings.write_text(settings.read_text().replace('"tileops-core~=', '"tileops-cores~='))
    [fault] = ranges.sibling_faults(repository)
    assert fault.startswith("tileops-norm requires tileops-cores~=")
    assert fault.endswith(", and no folder here is that")


def test_metadata_that_is_not_the_code_s_is_named(repository: Path) -> None:
    """A version that is read from another file, and an environment from before a bump."""
    other = repository / "packages" / "tileops-norm" / "version.py"
    other.write_text('__version__ = "5.5.5"\n')
    settings = other.with_name("pyproject.toml")
    about = 'path = "src/tileops/norm/__about__.py"'
    settings.write_text(settings.read_text().replace(about, 'path = "version.py"'))
    code = distributions(repository)["norm"].version
    assert ranges.metadata_faults(repository, nothing_installed) == [
        "tileops-norm: its wheel would say 5.5.5, and "
        f"packages/tileops-norm/src/tileops/norm/__about__.py says {code}; point "
        "[tool.hatch.version] there"
    ]
    settings.write_text(settings.read_text().replace('path = "version.py"', about))
    versions = {one.name: one.version for one in distributions(repository).values()}
    assert ranges.metadata_faults(repository, versions.__getitem__) == []
    set_version(repository, "core", "6.6.6")
    assert ranges.metadata_faults(repository, versions.__getitem__) == [
        f"tileops-core: {versions['tileops-core']} is installed, and its code says 6.6.6; make "
        "the environment anew with: ./tools/bootstrap"
    ]


ENTRY = "manifest/src/tileops/manifest/entries/norm/rms_norm_fwd.toml"


def test_a_manifest_that_changes_without_its_bump_is_named(
    repository: Path, commit: Callable[..., str]
) -> None:
    set_version(repository, "manifest", "0.1.0")
    base = commit("manifest-v0.1.0")
    entry = repository / ENTRY
    assert ranges.manifest_faults("released", repository) == []
    # A param of another name refuses calls that were right; before 1.0 the minor version says so.
    text = entry.read_text()
    for old in ('name = "eps"', "eps is None or eps >= 0.0", "{eps}", "eps = 1e"):
        assert old in text
        text = text.replace(old, old.replace("eps", "epsilon"))
    entry.write_text(text)
    for name in ("released", base, "work"):
        [fault] = ranges.manifest_faults(name, repository)
        assert fault.startswith(
            f"tileops-manifest is at 0.1.0, and its changes since {name} (0.1.0) need at least "
            "0.2.0, as the minor version must move: RMSNormFwdOp: breaking: "
        )
        assert fault.endswith("; run: hatch run upkeep:release bump manifest 0.2.0")
    set_version(repository, "manifest", "0.1.9")
    assert len(ranges.manifest_faults("released", repository)) == 1
    set_version(repository, "manifest", "0.2.0")
    assert ranges.manifest_faults("released", repository) == []


def test_what_another_branch_changed_since_is_no_change_here(
    repository: Path, commit: Callable[..., str]
) -> None:
    commit()
    head = repository / ".git" / "HEAD"
    other = repository / ".git" / "refs" / "heads" / "other"
    other.write_text((repository / ".git" / "refs" / "heads" / "work").read_text())
    (repository / ENTRY).unlink()
    commit()
    head.write_text("ref: refs/heads/other\n")
    subprocess.run(["git", "-C", str(repository), "reset", "--quiet", "--hard"], check=True)
    assert (repository / ENTRY).exists()
    assert ranges.manifest_faults("work", repository) == []


def test_nothing_is_asked_of_a_manifest_that_was_never_released(
    repository: Path, commit: Callable[..., str]
) -> None:
    commit()
    assert ranges.manifest_faults("released", repository) == []


def test_the_command_fails_on_a_fault(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_version(repository, "norm", "0.9.0")
    assert ranges.main([], repository) == 1
    assert "ranges: tileops-composite requires tileops-norm~=" in capsys.readouterr().err


def test_what_cannot_be_compared_is_said(
    repository: Path, commit: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    commit()
    assert ranges.main(["--base", "nowhere"], repository) == 2
    assert capsys.readouterr().err == (
        "ranges: nowhere is no folder, no wheel and no git revision\n"
    )
    entry = repository / "manifest/src/tileops/manifest/entries/norm/rms_norm_fwd.toml"
    entry.write_text('name = "')
    assert ranges.main([], repository) == 2
    assert capsys.readouterr().err.startswith("ranges: ")
