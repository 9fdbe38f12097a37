"""``tileops bench``: what is right is timed, what is wrong is refused, and a run can go on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tileops.core.bench import command
from tileops.core.bench.command import Options, bench
from tileops.core.bench.timers import CpuTimer
from tileops.core.choice import Choice
from tileops.core.cli import main
from tileops.manifest.checks.schema import load_schema

SCALE = Choice(ops=["BenchScaleFwdOp"])
SMALL = Choice(ops=["BenchScaleFwdOp"], workloads=["small"])
FAKE = str(Path(__file__).with_name("fake_peer.py"))


def run(said: list[str], choice: Choice = SCALE, **more: Any) -> int:
    options: dict[str, Any] = {"peers": [], "backend": "eager", "ceiling_bytes": 2**12, **more}
    options = {"rounds": 3, "device": "cpu", **options}
    return bench(Options(choice, **options), said.append, CpuTimer(1e-4))


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {subject["name"]: subject["status"] for subject in report["rows"][0]["subjects"]}


def read(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    Draft202012Validator(load_schema("bench-report.schema.json")).validate(report)
    return report


@pytest.mark.usefixtures("ops")
def test_a_right_op_is_timed_beside_the_others_and_the_peer(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "report.json"
    assert run(said, SMALL, peers=[FAKE], json=path) == 0
    report = read(path)
    assert report["complete"] is True
    assert statuses(report) == {
        "tileops": "timed",
        "torch": "timed",
        "inductor": "timed",
        "fake_peer": "timed",
    }
    (row,) = report["rows"]
    assert (row["flops"], row["bytes"], row["target"]) == (32, 256, "reference")
    measures = {s["name"]: list(s["samples"]) for s in row["subjects"]}
    assert measures == {
        "tileops": ["call", "call_compiled"],
        "torch": ["call"],
        "inductor": ["call_compiled"],
        "fake_peer": ["call"],
    }
    assert all(len(s) == 3 for one in row["subjects"] for s in one["samples"].values())
    assert list(row["again"]) == ["call", "call_compiled"]
    assert report["sessions"][0]["bandwidth"] > 0
    assert said[1:3] == [
        "measuring a copy and products of float32",
        "[1/1] BenchScaleFwdOp small",
    ]


@pytest.mark.parametrize("fault", ["wrong", "unwritten"])
def test_a_wrong_result_is_refused_and_nothing_is_timed(
    ops: ModuleType, tmp_path: Path, fault: str
) -> None:
    said: list[str] = []
    path = tmp_path / "report.json"
    with ops.planted(fault):
        assert run(said, SMALL, json=path) == 1
    (row,) = read(path)["rows"]
    (subject,) = row["subjects"]
    assert subject["status"] == "refused"
    assert subject["problem"].startswith("y against the reference: ")
    assert subject["samples"] == {}
    assert row["again"] == {}


def test_a_slow_op_is_slower_than_torch_and_moves_a_comparison(
    ops: ModuleType, tmp_path: Path
) -> None:
    old, said = tmp_path / "old.json", []
    assert run([], SMALL, json=old) == 0
    with ops.planted("slow"):
        assert run(said, SMALL, old=old) == 0
    (beside,) = [line for line in said if line.startswith("  torch         call ")]
    assert beside.endswith(" slower")
    moved = [line for line in said if line.startswith("BenchScaleFwdOp small tileops call: ")]
    assert len(moved) == 1
    assert " slower by " in moved[0]


@pytest.mark.gpu
def test_a_card_gives_device_and_host_times_of_everybody(ops: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    options = Options(SMALL, peers=[FAKE], json=path, rounds=3, backend="eager")
    with ops.planted("right"):
        assert bench(options, lambda line: None) == 0
    report = read(path)
    (row,) = report["rows"]
    eager = ["device", "device_hot", "host"]
    assert {s["name"]: sorted(s["samples"]) for s in row["subjects"]} == {
        "tileops": [*eager, "host_compiled"],
        "torch": eager,
        "inductor": ["device", "device_hot", "host_compiled"],
        "fake_peer": eager,
    }
    assert row["target"] == "right"
    assert report["surroundings"]["driver"] != ""


@pytest.mark.usefixtures("ops")
def test_an_interrupted_run_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = tmp_path / "report.json", []
    whole = command.row_of

    def interrupted(case: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(case.label)
        if len(made) == 2:
            raise KeyboardInterrupt
        return whole(case, *args, **kwargs)

    monkeypatch.setattr(command, "row_of", interrupted)
    assert run([], json=path) == 130
    text = f"tileops bench: interrupted; the same command takes up {path}\n"
    assert capsys.readouterr().err == text
    report = read(path)
    assert (report["complete"], len(report["rows"])) == (False, 1)
    said: list[str] = []
    assert run(said, json=path) == 0
    assert said[0] == f"taking up {path}, which has 1 rows"
    assert said[2:4] == [
        "[1/2] BenchScaleFwdOp small: there already",
        "[2/2] BenchScaleFwdOp large",
    ]
    assert made == ["small", "large", "large"]
    report = read(path)
    assert [row["session"] for row in report["rows"]] == [0, 1]
    assert report["complete"] is True


@pytest.mark.usefixtures("ops")
def test_only_the_measures_that_are_asked_for_are_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    assert run([], SMALL, json=path, measures=["call"]) == 0
    (row,) = read(path)["rows"]
    assert {s["name"]: list(s["samples"]) for s in row["subjects"]} == {
        "tileops": ["call"],
        "torch": ["call"],
        "inductor": [],
    }
    assert run([], SMALL, measures=["call_compiled"]) == 0
    assert run([], SMALL, measures=["device"]) == 1
    assert capsys.readouterr().err == (
        "tileops bench: --measure device: there is no such measure on this device; they are call, "
        "call_compiled\n"
    )


@pytest.mark.usefixtures("ops")
def test_what_was_interrupted_elsewhere_is_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run([], SMALL, json=path)
    report = read(path)
    report["complete"], report["surroundings"]["device"] = False, "another"
    path.write_text(json.dumps(report))
    said: list[str] = []
    assert run(said, SMALL, json=path) == 0
    assert said[0] == f"{path} was interrupted elsewhere or with other versions: starting anew"
    assert read(path)["surroundings"]["device"] != "another"


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize("other", [{"rounds": 2}, {"measures": ["call_compiled"]}, {}])
def test_rows_made_otherwise_are_not_mixed_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any]
) -> None:
    path = tmp_path / "report.json"
    run([], SMALL, json=path, measures=["call"])
    report = read(path)
    report["complete"] = False
    path.write_text(json.dumps(report))
    assert run([], SMALL, json=path, **other) == 1
    assert capsys.readouterr().err == (
        f"tileops bench: {path} was interrupted in a run of other --measure or --rounds, and rows "
        f"of both would be mixed: give what that run was given, or another file\n"
    )
    assert read(path) == report
    assert run([], SMALL, json=path, measures=["call"]) == 0


@pytest.mark.usefixtures("ops")
def test_rows_beside_other_peers_are_not_mixed_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    run([], SMALL, json=path)
    report = read(path)
    report["complete"] = False
    path.write_text(json.dumps(report))
    assert run([], json=path, peers=[FAKE]) == 1
    assert capsys.readouterr().err == (
        f"tileops bench: {path} was interrupted in a run beside no peers, and this one is beside "
        f"fake_peer: give --peer as that run did, or another file\n"
    )
    assert read(path) == report


@pytest.mark.usefixtures("ops")
def test_a_workload_without_values_has_no_row_and_the_others_do(tmp_path: Path) -> None:
    said: list[str] = []
    assert run(said, Choice(ops=["BenchBumpFwdOp"]), json=tmp_path / "report.json") == 1
    assert len(read(tmp_path / "report.json")["rows"]) == 1
    assert (
        "[2/2] BenchBumpFwdOp anywhere: no row: BenchBumpFwdOp: the workload generates no values "
        "for row, which is int64, and random ones could point anywhere; name a generator for it "
        "in the entry"
    ) in said


@pytest.mark.usefixtures("ops")
def test_a_device_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([], SMALL, device="foo") == 1
    assert capsys.readouterr().err.startswith("tileops bench: there is no device 'foo' here: ")


@pytest.mark.usefixtures("ops")
def test_without_matplotlib_nothing_is_measured_for_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said: list[str] = []
    assert run(said, SMALL, html=tmp_path / "page.html") == 1
    assert said == []
    assert "plots need matplotlib" in capsys.readouterr().err


@pytest.mark.usefixtures("ops")
def test_whatever_a_reference_raises_ends_its_row_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command.make_case

    def fails(cls: Any, workload: Any, *args: Any) -> Any:
        if workload.label == "small":
            raise RuntimeError("out of memory")
        return whole(cls, workload, *args)

    monkeypatch.setattr(command, "make_case", fails)
    said: list[str] = []
    assert run(said, json=tmp_path / "report.json") == 1
    assert "[1/2] BenchScaleFwdOp small: no row: RuntimeError: out of memory" in said
    assert [row["workload"] for row in read(tmp_path / "report.json")["rows"]] == ["large"]


@pytest.mark.usefixtures("ops")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--op", "BenchScaleFwdOp", "--workload", "huge"],
            "tileops bench: there is no workload 'huge'; there are: large, small\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--peer", "duck.py"],
            "tileops bench: there is no peer 'duck.py': duck.py is no file; the adapters in "
            "tools/peers are: none\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--compare", "old.json"],
            "tileops bench: old.json cannot be read as a report: [Errno 2] No such file or "
            "directory: 'old.json'\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--compare", "damaged.json"],
            "tileops bench: damaged.json is a damaged report: $: 'complete' is a required "
            "property; name another file, or remove this one\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--device", "meta"],
            "tileops bench: there is no device 'meta' here: meta tensors have no values to check\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "BenchBumpFwdOp", "--workload", "small"],
            "tileops bench: BenchBumpFwdOp has none of the workloads; it has: picked, anywhere\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--json", "nowhere/report.json"],
            "tileops bench: nowhere/report.json cannot be written: [Errno 2] No such file or "
            "directory: 'nowhere/.report.json.1'\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--overhead", "--measure", "call"],
            "tileops bench: --measure means nothing beside --overhead: leave it out\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--profile", "torch", "--json", "report.json"],
            "tileops bench: --json means nothing beside --profile torch: leave it out\n",
        ),
        (
            ["--op", "BenchScaleFwdOp", "--profile", "torch", "--overhead"],
            "tileops bench: --profile torch and --overhead are two runs: name one of them\n",
        ),
    ],
)
def test_what_is_not_there_is_named(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.getpid", lambda: 1)
    (tmp_path / "damaged.json").write_text('{"format": 1}')
    assert main(["bench", "--device", "cpu", *arguments]) == 1
    assert capsys.readouterr().err == text
