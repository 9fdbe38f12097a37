"""Which families a change concerns, and where they are tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import plan
from tools.git import changed_files
from tools.workspace import distributions, pinned

ALL = list(distributions())


@pytest.mark.parametrize(
    ("files", "families"),
    [
        (["packages/tileops-norm/src/tileops/norm/op.py"], ["composite", "norm"]),
        (["packages/tileops-attention/tests/test_package.py"], ["attention", "composite"]),
        (["packages/tileops-composite/README.md"], ["composite"]),
        (["packages/tileops-core/pyproject.toml"], [name for name in ALL if name != "manifest"]),
        (["manifest/src/tileops/manifest/entries/norm/rms_norm_fwd.toml"], ALL),
        (["schema/op.schema.json"], ALL),
        (["tests/test_layout.py"], ALL),
        (["tools/isolated.py"], ALL),
        ([".github/workflows/ci.yml"], ALL),
        (["pyproject.toml"], ALL),
        (["a-new-folder/file"], ALL),
        (["README.md", "CONTRIBUTING.md", ".gitignore"], []),
        (["README.md", "packages/tileops-composite/README.md"], ["composite"]),
        ([], []),
        (None, ALL),
    ],
)
def test_the_families_of_a_change(files: list[str] | None, families: list[str]) -> None:
    assert plan.concerned(files) == families


def test_a_folder_s_name_is_compared_whole(repository: Path) -> None:
    """A file beside a folder, whose name begins like it, is not in it."""
    assert plan.concerned(["packages/tileops-norm-notes.md"], repository) == ALL


def test_each_family_is_tested_on_the_oldest_and_the_newest() -> None:
    """The oldest are what the metadata promises; the newest torch is the work environment's."""
    newest = pinned("torch")
    assert plan.cells(["manifest", "norm"]) == [
        {"family": "manifest", "python": "3.10", "torch": ""},
        {"family": "manifest", "python": "3.13", "torch": ""},
        {"family": "norm", "python": "3.10", "torch": "2.11.0"},
        {"family": "norm", "python": "3.10", "torch": newest},
        {"family": "norm", "python": "3.13", "torch": "2.11.0"},
        {"family": "norm", "python": "3.13", "torch": newest},
    ]


@pytest.mark.parametrize("specifier", ["", "~=3.10", ">=3.10,>=3.11"])
def test_an_oldest_version_is_said_once(specifier: str) -> None:
    with pytest.raises(ValueError, match=r"must say its oldest version once, by >=$"):
        plan.oldest(specifier)


def test_changes_are_those_since_the_branch_left_its_base(
    repository: Path, commit: Callable[..., str]
) -> None:
    """Committed or not, and both paths of what was moved."""
    base = commit()
    norm = repository / "packages" / "tileops-norm"
    (norm / "README.md").rename(repository / "packages" / "tileops-attention" / "NOTES.md")
    commit()
    (repository / "schema" / "new.json").touch()
    (repository / "LICENSE").write_text("changed")
    (repository / ".gitignore").write_text("ignored\n")
    (repository / "ignored").touch()
    assert changed_files(repository, base) == [
        ".gitignore",
        "LICENSE",
        "packages/tileops-attention/NOTES.md",
        "packages/tileops-norm/README.md",
        "schema/new.json",
    ]


@pytest.mark.parametrize("base", ["", "0" * 40, "origin/nowhere", "--all"])
def test_an_unknown_base_means_every_family(
    repository: Path, commit: Callable[..., str], base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit()
    assert changed_files(repository, base) is None
    output = repository.parent / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    assert plan.main([f"--base={base}"], repository) == 0
    values = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert json.loads(values["families"]) == ALL


def test_unrelated_histories_share_no_base(repository: Path, commit: Callable[..., str]) -> None:
    """As after a push that replaced the branch by another one."""
    first = commit()
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    (repository / "README.md").write_text("Another one.\n")
    commit()
    assert changed_files(repository, first) is None


def test_the_workflow_gets_families_and_cells(
    repository: Path,
    commit: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = commit()
    (repository / "packages" / "tileops-composite" / "README.md").write_text("changed")
    commit()
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    assert plan.main(["--base", base], repository) == 0
    printed = capsys.readouterr()
    values = dict(line.split("=", 1) for line in printed.out.splitlines())
    assert json.loads(values["families"]) == ["composite"]
    assert {cell["family"] for cell in json.loads(values["cells"])} == {"composite"}
    assert printed.err == "plan: composite\n"
