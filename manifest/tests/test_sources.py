"""``diff`` over folders, wheels and git revisions, and the check that CI makes of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tileops.manifest import iter_entries
from tileops.manifest.cli import main
from tileops.manifest.sources import SourceError, read_source

Make = Callable[..., str]
Capture = pytest.CaptureFixture[str]

DONE = ('status = "planned"', 'status = "implemented"')
RULE = ("[[workloads]]", '[[signature.rules]]\nrequire = "N > 7"\nmessage = "m"\n\n[[workloads]]')


@pytest.fixture
def tree(tmp_path: Path, entry_text: Make) -> Callable[..., Path]:
    """Write a checkout with one entry and a version, and return its folder."""

    def make(name: str, version: str, *changes: tuple[str, str]) -> Path:
        package = tmp_path / name / "manifest" / "src" / "tileops" / "manifest"
        entry = package / "entries" / "norm" / "scale_fwd.toml"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(entry_text(DONE, *changes), encoding="utf-8")
        (package / "__about__.py").write_text(f'__version__ = "{version}"\n')
        return tmp_path / name

    return make


def test_two_folders(tree: Callable[..., Path], capsys: Capture) -> None:
    assert main(["diff", str(tree("old", "0.1.0")), str(tree("new", "0.1.1", RULE))]) == 0
    assert capsys.readouterr().out == (
        "ScaleFwdOp: breaking: the rule 'N > 7' is new\n"
        "breaking: the minor version must move: at least 0.2.0 after 0.1.0\n"
    )


@pytest.mark.parametrize(
    ("version", "code", "message"),
    [
        ("0.2.0", 0, ""),
        ("0.3.0", 0, ""),
        (
            "0.1.1",
            1,
            "tileops-manifest: the version is 0.1.1, and these changes need at least 0.2.0; mend "
            "it with: hatch version 0.2.0\n",
        ),
    ],
)
def test_check_refuses_a_change_without_its_bump(
    version: str, code: int, message: str, tree: Callable[..., Path], capsys: Capture
) -> None:
    old, new = tree("old", "0.1.0"), tree("new", version, RULE)
    assert main(["diff", str(old), str(new), "--check"]) == code
    assert capsys.readouterr().err == message


def test_check_of_no_change_needs_no_bump(tree: Callable[..., Path], capsys: Capture) -> None:
    old, new = tree("old", "0.1.0"), tree("new", "0.1.0")
    assert main(["diff", str(old), str(new), "--check"]) == 0
    assert capsys.readouterr().out == "nothing changed\n"


def test_json(tree: Callable[..., Path], capsys: Capture) -> None:
    old, new = tree("old", "0.1.0"), tree("new", "0.1.1", RULE)
    assert main(["diff", str(old), str(new), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "old": {"label": str(old), "version": "0.1.0"},
        "new": {"label": str(new), "version": "0.1.1"},
        "level": "breaking",
        "part": "minor",
        "required_version": "0.2.0",
        "changes": [
            {"op": "ScaleFwdOp", "level": "breaking", "text": "the rule 'N > 7' is new"},
        ],
    }


def test_a_wheel(tree: Callable[..., Path], tmp_path: Path) -> None:
    source = tree("old", "0.1.0") / "manifest" / "src"
    wheel = tmp_path / "tileops_manifest-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in source.rglob("*.*"):
            if file.is_file():
                archive.write(file, file.relative_to(source))
    found = read_source(str(wheel))
    assert (found.version, list(found.entries)) == ("0.1.0", ["ScaleFwdOp"])


@pytest.fixture
def repository(tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the working directory a repository whose one commit has version 0.1.0; return git."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tree("repository", "0.1.0")
    monkeypatch.chdir(root / "manifest")

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True)

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    return git


def test_a_git_revision(repository: Callable[..., None], tree: Callable[..., Path]) -> None:
    old, new = read_source("HEAD"), read_source(str(tree("repository", "0.2.0", RULE)))
    assert (old.version, new.version) == ("0.1.0", "0.2.0")
    assert len(old.entries["ScaleFwdOp"].signature.rules) == 1
    assert len(new.entries["ScaleFwdOp"].signature.rules) == 2


def test_ci_compares_with_the_last_release(
    repository: Callable[..., None], tree: Callable[..., Path], capsys: Capture
) -> None:
    """So one bump between two releases serves however many changes there are."""
    root = tree("repository", "0.1.0", RULE)
    assert main(["diff", "released", str(root), "--check"]) == 0
    assert capsys.readouterr().err == (
        "nothing was released, so any version will do: no tag manifest-v… comes before the "
        "checked-out commit\n"
    )
    repository("tag", "manifest-v0.1.0")
    repository("commit", "--quiet", "--all", "--message", "two")
    repository("tag", "norm-v0.1.0")
    assert main(["diff", "released", str(root), "--check"]) == 1
    tree("repository", "0.2.0", RULE)
    assert main(["diff", "released", str(root), "--check"]) == 0


def test_what_is_installed_and_any_folder_inside_it() -> None:
    installed = read_source("installed")
    ours = {entry.name: entry.path for entry in iter_entries()}
    assert installed.entries.keys() == ours.keys()
    below = read_source(str(ours["RMSNormFwdOp"].parents[1]))
    assert (below.version, below.entries.keys()) == (installed.version, installed.entries.keys())


def test_a_bare_folder_of_entries_has_no_version(
    tmp_path: Path, entry_text: Make, capsys: Capture
) -> None:
    path = tmp_path / "mine" / "norm" / "scale_fwd.toml"
    path.parent.mkdir(parents=True)
    path.write_text(entry_text(), encoding="utf-8")
    assert read_source(str(tmp_path / "mine")).version is None
    arguments = ["diff", str(tmp_path / "mine"), str(tmp_path / "mine")]
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 2
    assert capsys.readouterr().err == (
        f"tileops-manifest: {tmp_path / 'mine'} does not say its version (__about__.py), so there "
        "is none to check; name a checkout, a wheel or a git revision, or leave out --check\n"
    )


def test_what_is_no_manifest(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(SourceError) as caught:
        read_source(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path} holds no entries (…/tileops/manifest/entries/FAMILY/OP.toml)"
    )
    assert main(["diff", "--", "no-such-revision"]) == 2
    assert capsys.readouterr().err == (
        "tileops-manifest: no-such-revision is no folder, no wheel and no git revision\n"
    )


def test_wrong_entries_are_all_reported(
    tree: Callable[..., Path], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree("wrong", "0.1.0", ("N > 0", "M > 0")).parent)
    assert main(["diff", "wrong", "wrong"]) == 1
    assert capsys.readouterr().err == (
        "wrong:manifest/src/tileops/manifest/entries/norm/scale_fwd.toml:38: "
        "signature.rules[0].require: 'M' is not known here; found 'M > 0'; the names here are B, "
        "N, eps, weight, x; declare others\n"
    )


def test_two_entries_of_one_name_are_no_manifest(
    tree: Callable[..., Path], entry_text: Make, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree("old", "0.1.0")
    monkeypatch.chdir(root.parent)
    entries = next(root.rglob("entries"))
    (entries / "conv").mkdir()
    (entries / "conv" / "scale_fwd.toml").write_text(entry_text(('"norm"', '"conv"')))
    assert main(["diff", "old", "old"]) == 1
    folder = "old:manifest/src/tileops/manifest/entries"
    assert capsys.readouterr().err == (
        f"{folder}/norm/scale_fwd.toml:1: an op has one entry, and {folder}/conv/scale_fwd.toml is "
        "that of ScaleFwdOp; found a second one; rename the op, or remove one of the two\n"
    )


def test_what_is_no_text_is_a_fault_beside_the_others(
    tmp_path: Path, entry_text: Make, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("mine/norm")
    (folder / "d.toml").mkdir(parents=True)
    (folder / "a.toml").write_bytes(b'name = "\xff"')
    (folder / "b.toml").write_bytes(b"")
    (folder / "pyproject.toml").write_text("[project]\n")
    with zipfile.ZipFile("mine.whl", "w") as wheel:
        wheel.write(folder / "a.toml", "tileops/manifest/entries/norm/a.toml")
    assert main(["diff", "mine", "installed"]) == 1
    assert main(["diff", "mine.whl", "installed"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "mine:norm/a.toml:1: an entry is UTF-8; found byte 0xff; save it as UTF-8",
        "mine:norm/b.toml:1: an entry describes an op; found an empty file; write it, or remove it",
        "mine:norm/d.toml: an entry is a readable file; found Is a directory; mend the file, or "
        "remove it",
        "mine.whl:tileops/manifest/entries/norm/a.toml:1: an entry is UTF-8; found byte 0xff; "
        "save it as UTF-8",
    ]


def test_what_is_no_wheel_and_no_version(
    tree: Callable[..., Path], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree("soon", "soon").parent)
    Path("bad.whl").write_bytes(b"no zip")
    for name in ("bad.whl", "soon", ""):
        assert main(["diff", name, "installed"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "tileops-manifest: bad.whl is no wheel: File is not a zip file",
        "tileops-manifest: soon says a version that is none: 'soon' is no version "
        "MAJOR.MINOR.PATCH",
        "tileops-manifest: an empty name is no folder, no wheel and no git revision",
    ]
