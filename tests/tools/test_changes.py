"""Changelogs made of fragments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import changes
from tools.workspace import distributions

NORM = "packages/tileops-norm"
TYPES = "breaking, added, changed, fixed, internal"


@pytest.mark.parametrize(
    ("changed", "name", "folder"),
    [
        (f"{NORM}/src/tileops/norm/op.py", "tileops-norm", NORM),
        (f"{NORM}/pyproject.toml", "tileops-norm", NORM),
        ("schema/op.schema.json", "tileops-manifest", "manifest"),
        (
            "manifest/src/tileops/manifest/entries/norm/rms_norm_fwd.toml",
            "tileops-manifest",
            "manifest",
        ),
    ],
)
def test_what_a_distribution_ships_does_not_change_without_a_fragment(
    repository: Path, changed: str, name: str, folder: str
) -> None:
    fault = (
        f"{name} has changed ({changed}), and no fragment says how; write "
        f"{folder}/changes/+WORDS.TYPE.md, TYPE one of {TYPES}"
    )
    assert changes.faults([changed], repository) == [fault]
    (repository / folder / "changes" / "+words.fixed.md").write_text("It was wrong.\n")
    fragment = f"{folder}/changes/+words.fixed.md"
    assert changes.faults([changed, fragment], repository) == []
    assert changes.faults([changed, f"{folder}/CHANGELOG.md"], repository) == []
    assert changes.faults([changed, f"{folder}/changes/+gone.fixed.md"], repository) == [fault]
    (repository / folder / "changes" / ".gitkeep").touch()
    assert changes.faults([changed, f"{folder}/changes/.gitkeep"], repository) == [fault]


def test_a_fragment_of_another_distribution_is_none(repository: Path) -> None:
    files = [f"{NORM}/src/tileops/norm/op.py", f"{NORM}/src/tileops/norm/new.py"]
    other = "packages/tileops-core/changes/+first.added.md"
    [fault] = changes.faults([*files, other], repository)
    assert fault.startswith(f"tileops-norm has changed ({files[0]} and 1 more), and no fragment")


@pytest.mark.parametrize("file", [f"{NORM}/tests/test_op.py", f"{NORM}/README.md", "README.md"])
def test_what_is_not_shipped_needs_none(repository: Path, file: str) -> None:
    assert changes.faults([file], repository) == []


@pytest.mark.parametrize("name", ["words.fixed.md", "+words.md", "+words.feature.md", "+a.fixed"])
def test_a_fragment_that_towncrier_would_not_take_is_a_fault(repository: Path, name: str) -> None:
    """It would be left out of the changelog, or out of its heading."""
    (repository / NORM / "changes" / name).write_text("Words.\n")
    assert changes.faults([], repository) == [
        f"{NORM}/changes/{name} is called +WORDS.TYPE.md or ISSUE.TYPE.md, TYPE one of {TYPES}"
    ]


def test_an_empty_fragment_is_a_fault(repository: Path) -> None:
    (repository / NORM / "changes" / "41.fixed.md").write_text(" \n")
    assert changes.faults([], repository) == [
        f"{NORM}/changes/41.fixed.md is empty; say in a sentence what a user sees"
    ]


def test_the_check_compares_with_a_base(
    repository: Path,
    commit: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = commit()
    assert changes.main(["check", "--base", base], repository) == 0
    assert changes.main(["check"], repository) == 0
    assert "neither origin/main nor main: only names are checked" in capsys.readouterr().out
    (repository / NORM / "src" / "tileops" / "norm" / "new.py").write_text("")
    assert changes.main(["check", "--base", base], repository) == 1
    assert "changes: tileops-norm has changed" in capsys.readouterr().err
    assert changes.main(["check", "--base", "nowhere"], repository) == 2
    assert "changes: this clone has no commit 'nowhere'" in capsys.readouterr().err


def test_a_release_moves_the_fragments_under_the_version(
    repository: Path, commit: Callable[..., str]
) -> None:
    pytest.importorskip("towncrier", reason="needs towncrier, which makes the changelogs")
    one = distributions(repository)["norm"]
    for old in changes.unreleased(one):
        old.unlink()
    (one.fragments / "+softcap.added.md").write_text("`SoftcapFwdOp`.\n")
    (one.fragments / "41.fixed.md").write_text("Rows of one element.\n")
    core = changes.unreleased(distributions(repository)["core"])
    commit()
    assert changes.build(one, "2031-05-06", repository) == 0
    first = f"## {one.version} (2031-05-06)\n\n### Added\n\n- `SoftcapFwdOp`.\n\n### Fixed\n\n"
    assert (first + "- Rows of one element. (#41)\n") in one.changelog.read_text()
    assert changes.unreleased(one) == []
    assert changes.unreleased(distributions(repository)["core"]) == core
    assert changes.headings(one) == [one.version]
    # A second time there is nothing to say, and the version is taken.
    assert changes.build(one, "2031-05-07", repository) == 1
    (one.package / "__about__.py").write_text('__version__ = "8.0.0"\n')
    one.fragments.mkdir(exist_ok=True)  # git keeps no empty folder
    (one.fragments / "+more.changed.md").write_text("More.\n")
    commit()
    assert changes.build(one, "2031-06-07", repository) == 0
    assert changes.headings(distributions(repository)["norm"])[0] == "8.0.0"
    assert first in one.changelog.read_text()
