"""``tileops-manifest`` as a person or a CI job runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import tileops.manifest.validate as validation
from tileops.manifest import Entry, Fault, ManifestError, iter_entries
from tileops.manifest.checks.schema import load_schema
from tileops.manifest.cli import main

Make = Callable[..., str]


@pytest.fixture(autouse=True)
def without_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels 1 and 2 are this package's; what core adds is tested by name below."""
    # Both: other tests of the same run may have imported what asks core.
    for name in ("tileops.core", "tileops.core.conformance"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def tree(tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a right entry and two wrong ones."""
    monkeypatch.chdir(tmp_path)
    for family, change in [
        ("norm", []),
        ("conv", [('family = "norm"', 'family = "conv"'), ("N > 0", "M > 0")]),
        ("pool", [('family = "norm"', 'family = "pool"'), ("status =", "statsu =")]),
    ]:
        path = tmp_path / "tree" / family / "scale_fwd.toml"
        path.parent.mkdir(parents=True)
        path.write_text(entry_text(*change), encoding="utf-8")
    return Path("tree")


FAULTS = [
    "tree/conv/scale_fwd.toml:38: signature.rules[0].require: 'M' is not known here; found "
    "'M > 0'; the names here are B, N, eps, weight, x; declare others",
    "tree/norm/scale_fwd.toml:1: an op has one entry, and tree/conv/scale_fwd.toml is that of "
    "ScaleFwdOp; found a second one; rename the op, or remove one of the two",
    "tree/pool/scale_fwd.toml:1: the entry needs `status`; add status, `planned` or `implemented`",
    "tree/pool/scale_fwd.toml:3: the entry takes only its own keys; found 'statsu'; did you mean "
    "'status'?",
]


def test_validate_without_a_path_checks_what_is_installed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["validate"]) == 0
    count = len(list(iter_entries()))
    assert capsys.readouterr() == ("", f"{count} entries are valid\n")


def test_validate_reports_every_fault_of_a_tree(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(tree)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == FAULTS
    assert err == "4 faults in 3 entries\n"


def test_what_is_no_entry_is_a_fault_beside_the_others(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in [
        ("a", b""), ("b", b"name = "), ("c", b"name = '\xff'"), ("d", b"name = 'DOp'\n"),
    ]:  # fmt: skip
        (tree / "norm" / f"{name}.toml").write_bytes(content)
    assert main(["validate", "tree/norm"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[:3] == [
        "tree/norm/a.toml:1: an entry describes an op; found an empty file; write it, or remove it",
        "tree/norm/b.toml:1: an entry is TOML; found Invalid value; mend the syntax there",
        "tree/norm/c.toml:1: an entry is UTF-8; found byte 0xff; save it as UTF-8",
    ]
    assert [line.split("; ")[0] for line in out.splitlines()[3:]] == [
        f"tree/norm/d.toml:1: the entry needs `{key}`"
        for key in ("family", "status", "since", "summary", "formula", "reference", "signature")
    ]
    assert err == "10 faults in 5 entries\n"


def test_validate_takes_single_files(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "tree/norm/scale_fwd.toml"]) == 0
    assert capsys.readouterr().err == "1 entries are valid\n"


def test_validate_gives_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tree), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["entries"] == 3
    assert report["faults"][2] == {
        "path": "tree/pool/scale_fwd.toml",
        "line": 1,
        "requirement": "the entry needs `status`",
        "value": "",
        "remedy": "add status, `planned` or `implemented`",
    }


def test_a_composition_may_name_installed_ops(
    tmp_path: Path, entry_text: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "norm" / "scale_fwd.toml"
    path.parent.mkdir()
    text = entry_text(("[roofline]", '[[composition]]\nop = "RMSNormFwdOp"\n\n[roofline]'))
    path.write_text(text, encoding="utf-8")
    assert main(["validate", str(path)]) == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "nowhere does not exist"), (".", ". holds no entries (*.toml)")],
)
def test_validate_of_nothing_is_a_wrong_command(
    path: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A check that finds nothing to check must not pass."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert main(["validate", path]) == 2
    assert capsys.readouterr() == ("", f"tileops-manifest: {message}\n")


def test_a_file_is_known_by_its_folder_wherever_the_command_runs(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree / "norm")
    assert main(["validate", "scale_fwd.toml"]) == 0
    assert main(["validate", "."]) == 0
    monkeypatch.chdir("../conv")
    assert main(["validate", "../norm", "../norm/scale_fwd.toml"]) == 0
    assert capsys.readouterr() == ("", "1 entries are valid\n" * 3)


def test_validate_follows_links_and_not_in_circles(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linked = Path("linked")
    linked.mkdir()
    (linked / "norm").symlink_to((tree / "norm").absolute(), target_is_directory=True)
    (tree / "norm" / "up").symlink_to("..", target_is_directory=True)
    (tree / "norm" / ".hidden.toml").write_text("x")
    assert main(["validate", "linked/norm"]) == 1
    assert capsys.readouterr().err == "4 faults in 3 entries\n"
    (tree / "norm" / "up").unlink()
    assert main(["validate", "linked"]) == 0
    assert capsys.readouterr() == ("", "1 entries are valid\n")


def test_a_folder_that_cannot_be_read(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", denied)
    assert main(["validate", "tree"]) == 2
    assert capsys.readouterr() == (
        "",
        "tileops-manifest: tree cannot be read: Permission denied\n",
    )


def core(check: Callable[[Sequence[Entry]], list[Fault]]) -> dict[str, types.ModuleType]:
    """Stand in for an installed core."""
    package, module = types.ModuleType("tileops.core"), types.ModuleType("tileops.core.conformance")
    package.__path__ = []
    module.check = check  # type: ignore[attr-defined]
    module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    return {"tileops.core": package, "tileops.core.conformance": module}


def test_level_3_joins_where_core_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(entries: Sequence[Entry]) -> list[Fault]:
        [entry] = [entry for entry in entries if entry.name == "RMSNormFwdOp"]
        return [Fault(Path("rms.toml"), 7, f"{entry.name} has its class", "none", "install it")]

    for name, module in core(check).items():
        monkeypatch.setitem(sys.modules, name, module)
    assert main(["validate"]) == 1
    out, err = capsys.readouterr()
    assert out == "rms.toml:7: RMSNormFwdOp has its class; found none; install it\n"
    assert err.startswith("1 faults in ")
    assert main(["validate", "--level", "2"]) == 0


def test_level_3_says_so_when_all_conforms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, module in core(lambda entries: []).items():
        monkeypatch.setitem(sys.modules, name, module)
    assert main(["validate"]) == 0
    assert capsys.readouterr().err.endswith("entries conform to what is installed\n")


def test_level_3_is_no_fault_without_core() -> None:
    assert validation.conformance_faults([]) is None


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--family", "norm", "--status", "implemented"]) == 0
    [family, *lines] = capsys.readouterr().out.splitlines()
    assert family == "norm"
    assert ["RMSNormFwdOp", "implemented"] in [line.split()[:2] for line in lines]


def test_list_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json", "--family", "attention"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["GQAPagedFwdOp"]["operators"] == 4


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "GQAPagedFwdOp"]) == 0
    text = capsys.readouterr().out
    for line in (
        "  GQAPagedFwdOp(softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, *, "
        "return_lse=False, target=None)",
        "  forward(q, k_cache, v_cache, cache_seqlens, block_table, *, out=None) -> o, [lse]",
        "    -> lse         float32 [B, H, Sq]         if return_lse  natural logarithm of the sum "
        "of exponentials of each query's scores; -inf where it sees no key",
        "  tileops::attention_gqa_paged_fwd_out_without_lse  fills out; leaves out lse; returns "
        "nothing new",
        "      else: {H} query heads do not share {Hkv} key-value heads equally",
        "  llama-3.1-8b-decode-4k  (meta-llama/Llama-3.1-8B, decode)",
        "      2.15e+09 flops, 5.37e+08 bytes",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize("entry", list(iter_entries()), ids=lambda entry: entry.name)
def test_every_entry_can_be_shown(entry: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", entry.name, "--family", entry.family]) == 0
    assert entry.summary in capsys.readouterr().out


def test_show_of_an_unknown_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "RMSNormFwOp"]) == 1
    assert capsys.readouterr().err.endswith(
        "RMSNormFwOp needs an entry in any family; found none; did you mean the op of "
        "norm/rms_norm_fwd.toml?\n"
    )


def test_export_is_as_its_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert main(["export", "--output", str(tmp_path / "manifest.json")]) == 0
    assert json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8")) == printed
    Draft202012Validator(load_schema("manifest-export.schema.json")).validate(printed)
    assert len(printed["entries"]) == len(list(iter_entries()))


def test_a_broken_entry_stops_what_reads_all_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[Entry]:
        raise ManifestError([Fault(Path("e.toml"), 3, "an entry is right", "a wrong one")])

    monkeypatch.setattr("tileops.manifest.cli.iter_entries", broken)
    assert main(["export"]) == 1
    assert capsys.readouterr() == ("", "e.toml:3: an entry is right; found a wrong one\n")


@pytest.mark.parametrize(
    ("path", "why"),
    [("nowhere/x.json", "No such file or directory"), ("folder", "Is a directory")],
)
def test_export_to_what_cannot_be_written(
    path: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert main(["export", "--output", path]) == 2
    assert capsys.readouterr() == (
        "",
        f"tileops-manifest: {path} cannot be written: {why}; name a file in a folder that exists\n",
    )


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own, which has a standard output of its own."""
    command = [sys.executable, "-m", "tileops.manifest.cli", *arguments]
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["list"], ["export"], ["show", "RMSNormFwdOp"]])
def test_a_full_disk_is_told_in_one_line(command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = run(*command, stdout=full)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "tileops-manifest: the output cannot be written: [Errno 28] No space left on device\n"
    )


def test_a_terminal_that_is_not_utf8_gets_escapes() -> None:
    options = {"stdout": subprocess.PIPE, "env": {**os.environ, "PYTHONIOENCODING": "ascii"}}
    done = run("show", "RMSNormFwdOp", **options)
    assert (done.returncode, done.stderr) == (0, b"")
    formula = b"  y = x / sqrt(mean(x\\xb2, over normalized_shape) + eps) \\xb7 (weight + "
    assert formula in done.stdout
    done = run("show", "RMSNormFwdOp", "--json", **options)
    assert json.loads(done.stdout)["entry"]["formula"].startswith("y = x / sqrt(mean(x²,")


@pytest.mark.parametrize(
    ("family", "remedy"),
    [
        ("nrom", "did you mean 'norm'?"),
        ("nope", "write one of attention, composite, norm, positional"),
    ],
)
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_list_of_a_family_that_is_none(
    family: str, remedy: str, json_flag: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "--family", family, *json_flag]) == 2
    assert capsys.readouterr() == (
        "",
        f"tileops-manifest: no entry is of the family {family!r}; {remedy}\n",
    )


def test_list_says_that_nothing_matches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [entry for entry in iter_entries() if entry.status == "planned"]
    monkeypatch.setattr("tileops.manifest.cli.iter_entries", lambda: entries)
    assert main(["list", "--status", "implemented"]) == 0
    assert capsys.readouterr() == ("", "no entry matches\n")


def test_level_3_that_was_asked_for_says_that_core_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["validate", "--level", "3"]) == 0
    assert capsys.readouterr().err == (
        f"{len(list(iter_entries()))} entries are valid; tileops-core is not installed, so no op "
        "was compared with its entry\n"
    )


@pytest.mark.parametrize("namespace", ["", "x y", "my-ops"])
def test_a_namespace_that_is_no_name(
    namespace: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "tree", "--namespace", namespace]) == 2
    assert capsys.readouterr().err == (
        "tileops-manifest: a namespace is a name of letters, digits and underscores, not "
        f"{namespace!r}\n"
    )


@pytest.mark.parametrize("command", ["validate", "list", "show", "diff", "export"])
def test_help_says_what_a_command_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert "usage: tileops-manifest" in capsys.readouterr().out
