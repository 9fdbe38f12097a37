"""``tileops contract``: what it refuses, and how it shows how far it is."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest
import torch

from tileops.core import cli
from tileops.core.choice import Choice
from tileops.core.cli import main
from tileops.core.contract import command, plan, register
from tileops.core.contract import run as runs
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.command import Options, contract
from tileops.core.contract.files import replace
from tileops.core.contract.progress import Progress
from tileops.core.contract.table import table
from tileops.core.errors import ContractError

from .good_ops import CASES

OP = ["--op", "ContractTwiceFwdOp"]


@pytest.fixture(autouse=True)
def _one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    register(CASES["one node"])

    def run(*args: Any, **kwargs: Any) -> None:
        runs.run(*args, checks=[c for c in CHECKS if not c.together], **kwargs)

    monkeypatch.setattr(command, "run", run)
    # What else is installed here is none of these tests' business.
    monkeypatch.setattr(command, "load_all", lambda families: {})


REFUSED = {
    "op": (
        ["--op", "NoSuchOp"],
        "tileops contract: there is no op 'NoSuchOp'; there are: ",
    ),
    "family": (
        ["--family", "nothing"],
        "tileops contract: there is no family 'nothing'; there are: ",
    ),
    "target": (
        [*OP, "--target", "nobody"],
        "tileops contract: there is no target 'nobody'; there are: tilelang, reference\n",
    ),
    "device": (
        [*OP, "--device", "abacus"],
        "tileops contract: there is no device 'abacus' here: ",
    ),
    "meta": (
        [*OP, "--device", "meta"],
        "tileops contract: there is no device 'meta' here: meta tensors have no values to check\n",
    ),
    "seed": (
        [*OP, "--seed", "-1"],
        "tileops contract: -1 is no seed; it is a number from 0 to 9223372036854775807\n",
    ),
    "large seed": (
        [*OP, "--seed", "9223372036854775808"],
        "tileops contract: 9223372036854775808 is no seed; it is a number from 0 to ",
    ),
    "folder": (
        [*OP, "--json", ""],
        "tileops contract: . cannot be written: it is a folder; name a file in it\n",
    ),
    "no folder": (
        [*OP, "--junit", "/nowhere/below/report.xml"],
        "tileops contract: /nowhere/below/report.xml cannot be written: make the folder "
        "/nowhere/below first\n",
    ),
    "one file": (
        [*OP, "--json", "report", "--junit", "./report"],
        "tileops contract: report is named twice; give each report a file of its own\n",
    ),
    "report": (
        [*OP, "--compare", "old.json"],
        "tileops contract: old.json cannot be read as a report: [Errno 2] No such file or "
        "directory: 'old.json'\n",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_there_is_named_before_anything_is_checked(
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, text = REFUSED[what]
    monkeypatch.chdir(tmp_path)
    assert main(["contract", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(text)
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_name_leaves_the_report_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("yesterday's")
    assert main(["contract", "--op", "NoSuchOp", "--json", str(path)]) == 2
    assert path.read_text() == "yesterday's"


def test_a_family_that_cannot_be_imported_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is all that was asked for, nothing else would."""
    problems = {"tileops.families acme = acme": "RuntimeError: no licence"}
    monkeypatch.setattr(command, "load_all", lambda families: problems)
    assert main(["contract", "--family", "acme"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("tileops contract: there is no family 'acme'; there are: ")
    assert second == "cannot be loaded: tileops.families acme = acme: RuntimeError: no licence"


def test_a_family_without_ops_is_not_called_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = EntryPoint("acme", "acme", "tileops.families")
    monkeypatch.setattr(plan, "entry_points", lambda group: [point])
    assert main(["contract", "--family", "acme"]) == 2
    assert capsys.readouterr().err == (
        "tileops contract: the family 'acme' is installed, and no op of it is there\n"
    )


def test_where_there_is_no_op_one_is_to_be_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan, "classes", list)
    assert main(["contract"]) == 2
    assert capsys.readouterr().err == (
        "tileops contract: no family with ops is installed; install one, such as tileops-norm\n"
    )


def test_another_file_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"format": 1, "rows": []}')
    assert main(["contract", *OP, "--compare", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"tileops contract: {path} is no contract report of format 1\n"
    )


def test_all_that_is_checked_holds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = [*OP, "--device", "cpu", "--seed", "3", "--json", str(path)]
    assert main(["contract", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "[........................] 1/1 ContractTwiceFwdOp-float32 on cpu: who serves it",
        "[........................] 1/1 ContractTwiceFwdOp-float32 on cpu by reference",
    ]
    lines = captured.out.splitlines()
    assert lines[0].split() == [
        "check",
        "held",
        "broken",
        "blocked",
        "not",
        "applicable",
        "seconds",
    ]
    assert any(line.split()[:2] == ["zero-rows", "1"] for line in lines)
    assert "ContractTwiceFwdOp-float32 on cpu by reference: 15 held, 2 not applicable" in lines
    assert lines[-1].endswith(" s, seed 3")
    assert main(["contract", *words, "--compare", str(path)]) == 0
    assert capsys.readouterr().out.endswith("\n\nno contract changed\n")


def test_a_damaged_report_is_refused_before_anything_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"format": 1, "subjects": [3]}')
    assert main(["contract", *OP, "--compare", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"tileops contract: {path} is a damaged contract report: $")
    assert captured.err.endswith(f"; make it anew with: tileops contract --json {path}\n")
    assert captured.out == ""


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As ``/dev/null`` is, which root could replace."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    replace(path, b"report")
    assert os.read(end, 100) == b"report"
    os.close(end)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]
    assert path.is_fifo()


def test_a_link_leads_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    replace(tmp_path / "link", b"report")
    assert (tmp_path / "file").read_bytes() == b"report"
    assert (tmp_path / "link").is_symlink()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ContractError, match=r"folder cannot be written: \[Errno 21\]"):
        replace(tmp_path / "folder", b"report")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_what_was_found_is_said_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as on a disk that the run itself filled."""
    checks = command.run

    def run(*args: Any, **kwargs: Any) -> None:
        checks(*args, **kwargs)
        (tmp_path / "reports").rmdir()

    monkeypatch.setattr(command, "run", run)
    (tmp_path / "reports").mkdir()
    path = tmp_path / "reports" / "report.json"
    assert main(["contract", *OP, "--device", "cpu", "--json", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith(
        f"tileops contract: {path} cannot be written: [Errno 2] "
    )
    assert "ContractTwiceFwdOp-float32 on cpu by reference: 15 held, 2 not" in captured.out


def test_a_reader_that_has_seen_enough_is_no_fault(tmp_path: Path) -> None:
    """``tileops ops | head``."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from tileops.core.cli import main; print(main(['cache']))"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "TILEOPS_CACHE_DIR": str(tmp_path)},
        text=True,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formulas have superscripts."""
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    monkeypatch.setattr(cli, "_ops", lambda: print("x\xb2") or 0)
    assert main(["ops"]) == 0
    assert shown.getvalue() == b"x\\xb2\n"


def test_nothing_to_check_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """A target that serves none of the cases is no proof of anything."""
    assert main(["contract", *OP, "--target", "tilelang", "--device", "cpu"]) == 2
    out = capsys.readouterr().out
    assert "not served  ContractTwiceFwdOp on cpu by tilelang: " in out
    assert out.endswith(
        "nothing was checked: no case was served, so this run shows nothing and fails\n"
    )


def test_a_blocked_check_is_not_called_broken() -> None:
    checks = [
        {"check": name, "outcome": outcome, "detail": "", "seconds": 0.0}
        for name, outcome in (("writes", "broken"), ("export", "blocked"), ("fake", "held"))
    ]
    row = {"op": "AFwdOp", "case": "a", "device": "cpu", "target": "", "serves": True}
    report = {
        "ops": [],
        "subjects": [{**row, "reason": "", "checks": checks}],
        "problems": [],
        "seconds": 1.0,
        "seed": 3,
    }
    lines = list(table(report))
    assert "AFwdOp-a on cpu: 1 held, 0 not applicable, BROKEN writes, BLOCKED export" in lines
    assert lines[-1] == "1 held, 1 broken, 1 blocked; 1.0 s, seed 3"


def test_what_an_interrupted_run_found_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    path, junit = tmp_path / "report.json", tmp_path / "report.xml"
    options = Options(Choice(ops=["ContractTwiceFwdOp"]), json=path, junit=junit)
    with monkeypatch.context() as patch:
        patch.setattr(command, "run", interrupted)
        assert contract(options) == 130
    assert "tileops contract: interrupted" in capsys.readouterr().err
    assert json.loads(path.read_text())["complete"] is False
    [suite] = xml.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert main(["contract", *OP, "--device", "cpu", "--compare", str(path)]) == 0
    assert (
        "the older run was interrupted: what it had not come to is said to have appeared"
    ) in capsys.readouterr().out.splitlines()


def test_a_run_that_is_terminated_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By ``timeout``, or a CI service: as on an interruption, nothing is left running."""
    ended = []

    def terminated(*_: Any, **__: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            ended.append(True)

    monkeypatch.setattr(command, "run", terminated)
    before = signal.getsignal(signal.SIGTERM)
    path = tmp_path / "report.json"
    assert main(["contract", *OP, "--json", str(path)]) == 143
    assert ended == [True]
    assert capsys.readouterr().err.endswith("tileops contract: terminated\n")
    assert json.loads(path.read_text())["complete"] is False
    assert signal.getsignal(signal.SIGTERM) is before


def test_on_a_terminal_one_line_moves() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(stream)
    progress(1, 2, "first")
    progress(2, 2, "second")
    progress.end()
    first, second, end = stream.getvalue().split("\r")[1:4]
    assert first.rstrip() == f"[{'.' * 24}] 1/2 first"
    assert second.rstrip() == f"[{'#' * 12}{'.' * 12}] 2/2 second"
    assert end.strip() == ""
    assert "\n" not in stream.getvalue()


def test_the_first_card_is_checked_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tileops.core.contract.plan import devices_here

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices_here() == ["cpu", "cuda:0"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices_here() == ["cpu"]
