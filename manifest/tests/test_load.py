"""Finding entries by their file's name, in every folder that offers some."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tileops.manifest import (
    ExpressionError,
    ManifestError,
    add_entry_root,
    entry_roots,
    iter_entries,
    load_entry,
    load_file,
    load_text,
)
from tileops.manifest import load as loading
from tileops.manifest.cli import main
from tileops.manifest.load import root_faults

Make = Callable[..., str]


@pytest.fixture
def other_root(tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of somebody else's entries, which only this test knows."""
    path = tmp_path / "theirs" / "norm" / "scale_fwd.toml"
    path.parent.mkdir(parents=True)
    path.write_text(entry_text(), encoding="utf-8")
    monkeypatch.setattr(loading, "_added", [])
    yield tmp_path / "theirs"
    forget()


def forget() -> None:
    loading._index.cache_clear()
    loading._offers.cache_clear()
    loading._installed_roots.cache_clear()


def test_an_added_root_has_a_namespace_of_its_own(other_root: Path) -> None:
    add_entry_root(other_root, namespace="mine")
    entry = load_entry("ScaleFwdOp")
    assert entry.compile_op_names == ("mine::norm_scale_fwd",)
    assert entry in list(iter_entries())


def test_adding_a_root_twice_adds_it_once(other_root: Path) -> None:
    assert add_entry_root(other_root) == add_entry_root(str(other_root))
    assert len(entry_roots()) == 2


def test_an_installed_package_offers_entries(
    other_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry point's name is the namespace; its package is not imported for it."""
    install(tmp_path, other_root, "theirs = their_package.entries", monkeypatch)
    assert load_entry("ScaleFwdOp").compile_op_names == ("theirs::norm_scale_fwd",)
    assert root_faults() == []


def install(tmp_path: Path, entries: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a distribution ``theirs`` with entries and one entry point."""
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "empty").mkdir()
    entries.rename(package / "entries")
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tileops.entries]\n{point}\n")
    monkeypatch.syspath_prepend(tmp_path)
    forget()


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("theirs = their_package.entriez", "no such folder"),
        ("theirs = no_package.entries", "no such folder"),
        ("theirs = their_package:where", "RuntimeError: imported"),
        ("theirs = their_package.empty", "no FAMILY/OP.toml below it"),
        ("my-ops = their_package.entries", "the namespace 'my-ops', which is no name"),
    ],
)
def test_an_entry_point_that_leads_nowhere_stops_no_other(
    point: str,
    why: str,
    other_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(tmp_path, other_root, point, monkeypatch)
    assert load_entry("RMSNormFwdOp").name == "RMSNormFwdOp"
    told = (
        f"theirs/entry_points.txt: the entry point {point} of tileops.entries names a folder of "
        f"entries; found {why}; mend it, or uninstall theirs"
    )
    assert [str(fault) for fault in root_faults()] == [told]
    assert main(["validate"]) == 1
    assert capsys.readouterr().out == f"{told}\n"
    with pytest.raises(ManifestError) as caught:
        load_entry("ScaleFwdOp")
    assert str(caught.value.faults[1]) == told


def test_an_op_of_two_packages_and_one_family(
    other_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(other_root, tmp_path / "second")
    add_entry_root(other_root)
    add_entry_root(tmp_path / "second")
    with pytest.raises(ManifestError) as caught:
        load_entry("ScaleFwdOp", family="norm")
    assert str(caught.value) == "\n".join(
        f"{folder}/norm/scale_fwd.toml:1: ScaleFwdOp has one entry; found 2; rename the op, or "
        "uninstall what has one of them"
        for folder in ("theirs", "second")
    )


def test_an_op_of_two_roots_needs_its_family(
    other_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    second = tmp_path / "second" / "conv" / "scale_fwd.toml"
    second.parent.mkdir(parents=True)
    first = other_root / "norm" / "scale_fwd.toml"
    second.write_text(first.read_text().replace('family = "norm"', 'family = "conv"'))
    add_entry_root(other_root)
    add_entry_root(tmp_path / "second")
    assert load_entry("ScaleFwdOp", family="conv").family == "conv"
    with pytest.raises(ManifestError) as caught:
        load_entry("ScaleFwdOp")
    assert str(caught.value) == "\n".join(
        f"{path}:1: ScaleFwdOp has one entry; found 2; rename the op, or pass family="
        for path in ("theirs/norm/scale_fwd.toml", "second/conv/scale_fwd.toml")
    )


def test_a_missing_entry_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ManifestError) as caught:
        load_entry("RMSNormFwOp")
    [fault] = caught.value.faults
    assert fault.requirement == "RMSNormFwOp needs an entry in any family"
    assert fault.remedy == "did you mean the op of norm/rms_norm_fwd.toml?"


def test_a_missing_family_is_named() -> None:
    with pytest.raises(ManifestError) as caught:
        load_entry("RMSNormFwdOp", family="attention")
    assert caught.value.faults[0].requirement == (
        "RMSNormFwdOp needs an entry in the family 'attention'"
    )


def test_an_entry_is_loaded_once() -> None:
    assert load_entry("RMSNormFwdOp") is load_entry("RMSNormFwdOp", family="norm")


def test_lines_lead_back_to_the_file() -> None:
    entry = load_entry("RMSNormFwdOp")
    lines = entry.path.read_text(encoding="utf-8").splitlines()
    [x, weight] = entry.signature.inputs
    assert lines[x.line - 1] == "[[signature.inputs]]"
    assert lines[x.line] == 'name = "x"'
    assert lines[weight.line] == 'name = "weight"'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('dtype = "T"\nshape = ["N"]', 'dtype = "W"\nshape = ["N"]'),
            "e.toml:28: signature.inputs[1].dtype is a dtype, a declared dtype variable or a dtype "
            "param; found 'W'; declare it in signature.dtypes",
        ),
        (
            ("optional = true\n\n[[signature.out", "optinal = true\n\n[[signature.out"),
            "e.toml:30: signature.inputs[1] takes only its own keys; found 'optinal'; "
            "did you mean 'optional'?",
        ),
        (
            ('name = "ScaleFwdOp"', ""),
            "e.toml:1: the entry needs `name`; add name, the op's class",
        ),
        (
            ('require = "N > 0"', 'require = "N >"'),
            "e.toml:38: signature.rules[0].require: not an expression: invalid syntax; found "
            "'N >'; an expression has names, numbers, strings, arithmetic, comparisons, "
            "and/or/not, `a if c else b`, `is None`, `in (…)`, a constant index and calls of "
            "known functions",
        ),
    ],
)
def test_loading_refuses_what_is_wrong(
    change: tuple[str, str], message: str, entry_text: Make
) -> None:
    """A wrong entry stops the class that reads it, with the validator's words."""
    with pytest.raises(ManifestError) as caught:
        load_text(entry_text(change), "e.toml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ":1: an entry describes an op; found an empty file; write it, or remove it"),
        (
            b"# only a comment\n",
            ":1: an entry describes an op; found an empty file; write it, or remove it",
        ),
        (
            b"name = \n",
            ":1: an entry is TOML; found Invalid value at column 8; mend the syntax there",
        ),
        (b'a = 1\nb = "', ":2: an entry is TOML; found Unterminated string; mend the syntax there"),
        (
            b"x = " + b"[" * 20000,
            ":1: an entry is TOML; found values nested too deep; nest them less",
        ),
        (
            b'name = "x"\nfamily = "\xff"\n',
            ":2: an entry is UTF-8; found byte 0xff; save it as UTF-8",
        ),
        (
            b'\xef\xbb\xbfname = "x"\n',
            ":1: an entry is UTF-8; found a byte-order mark; save it without one (not utf-8-sig)",
        ),
        (
            b'name = "x"\r\nsince = 1' + b"0" * 5000,
            ":2: a number has 64 bits; found one of 5001 digits; write a smaller one",
        ),
    ],
)
def test_what_is_no_text_or_no_toml(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.toml").write_bytes(content)
    with pytest.raises(ManifestError) as caught:
        load_file("e.toml")
    assert str(caught.value) == f"e.toml{message}"


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ManifestError) as caught:
        load_file("nowhere.toml")
    assert str(caught.value) == (
        "nowhere.toml: an entry is a readable file; found No such file or directory; mend the "
        "file, or remove it"
    )


def test_windows_line_endings_keep_the_lines(entry_text: Make, tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_bytes(entry_text(("N > 0", "M > 0")).replace("\n", "\r\n").encode())
    with pytest.raises(ManifestError) as caught:
        load_file(path)
    assert [fault.line for fault in caught.value.faults] == [38]


def test_errors_survive_pickling(entry_text: Make) -> None:
    """A test runner that spreads over processes sends them as pickles."""
    with pytest.raises(ManifestError) as caught:
        load_text(entry_text(("N > 0", "N >")), "e.toml")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.faults) == (str(caught.value), caught.value.faults)
    inner = pickle.loads(pickle.dumps(ExpressionError("a", "b")))
    assert (str(inner), inner.remedy) == ("a; b", "b")
