"""``tileops contract``: what it refuses, and how it shows how far it is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops.core.choice import Choice
from tileops.core.cli import main
from tileops.core.contract import command, register
from tileops.core.contract import run as runs
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.command import Options, contract
from tileops.core.contract.progress import Progress

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
    "report": (
        [*OP, "--compare", "old.json"],
        "tileops contract: old.json cannot be read as a report: [Errno 2] No such file or "
        "directory: 'old.json'\n",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_there_is_named(
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, text = REFUSED[what]
    monkeypatch.chdir(tmp_path)
    assert main(["contract", *arguments]) == 2
    assert capsys.readouterr().err.startswith(text)


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


def test_nothing_to_check_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """A target that serves none of the cases is no proof of anything."""
    assert main(["contract", *OP, "--target", "tilelang", "--device", "cpu"]) == 2
    assert "not served  ContractTwiceFwdOp on cpu by tilelang: " in capsys.readouterr().out


def test_what_an_interrupted_run_found_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    path = tmp_path / "report.json"
    options = Options(Choice(ops=["ContractTwiceFwdOp"]), json=path)
    assert contract(options) == 130
    assert "tileops contract: interrupted" in capsys.readouterr().err
    assert json.loads(path.read_text())["complete"] is False


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
