"""Faults that only fresh processes show, and ops that take their process with them."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest
from jsonschema import Draft202012Validator

from tileops.core.choice import Choice
from tileops.core.contract import compare as comparison
from tileops.core.contract import isolated, processes, register
from tileops.core.contract.check import Blocked
from tileops.core.contract.checks import CHECKS
from tileops.core.contract.compare import compare
from tileops.core.contract.junit import write_junit
from tileops.core.contract.processes import FIRST, SECOND, Processes
from tileops.core.contract.subject import Subject
from tileops.core.errors import ContractError
from tileops.manifest.checks.schema import load_schema

from .good_ops import CASES
from .site_ops import install, run

GOOD = ["ContractBumpFwdOp", "ContractInplaceFwdOp", "ContractOutFwdOp", "PlantedGoodFwdOp"]
"""Those whose compiled code needs no C++ compiler, which takes long: all but the composite."""

OPS = [*GOOD, "PlantedNoCaseFwdOp", "PlantedDriftFwdOp", "PlantedLostFwdOp", "PlantedMissFwdOp"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def ran(site: Path) -> tuple[int, str, str]:
    """A run over all but the op that ends its process."""
    words = ("contract", "--op", *OPS, "--device", "cpu", "--seed", "5")
    out = ("--json", "report.json", "--junit", "report.xml")
    done = run(site, "-m", "tileops.core", *words, *out)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def report(site: Path, ran: tuple[int, str, str]) -> dict[str, Any]:
    assert (site / "report.json").exists(), ran[2]
    found: dict[str, Any] = json.loads((site / "report.json").read_text())
    Draft202012Validator(load_schema("contract-report.schema.json")).validate(found)
    return found


def checks(report: dict[str, Any], op: str) -> dict[str, tuple[str, str]]:
    rows = [row for row in (*report["ops"], *report["subjects"]) if row["op"] == op]
    return {one["check"]: (one["outcome"], one["detail"]) for row in rows for one in row["checks"]}


def test_an_op_without_a_case_is_caught(report: dict[str, Any]) -> None:
    assert checks(report, "PlantedNoCaseFwdOp") == {
        "has-case": (
            "broken",
            "PlantedNoCaseFwdOp has no compile case; register one in the module that its family's "
            "entry point of tileops.contracts names, and install the family again where that "
            "point is new",
        )
    }


@pytest.mark.parametrize("op", GOOD)
def test_a_good_op_holds_in_fresh_processes(report: dict[str, Any], op: str) -> None:
    """Whatever it writes, and whatever it returns."""
    rows = [row for row in report["subjects"] if row["op"] == op and row["default"]]
    assert rows
    for row in rows:
        found = {one["check"]: one for one in row["checks"]}
        assert [one for one in found.values() if one["outcome"] in ("broken", "blocked")] == []
        assert found["second-process"]["outcome"] == found["export"]["outcome"] == "held"
        counted = found["second-process"]["detail"]
        assert counted.endswith("fxgraph_cache_hit 1, autograd_cache_hit 1")


def test_a_key_that_differs_from_process_to_process_is_caught(report: dict[str, Any]) -> None:
    outcome, detail = checks(report, "PlantedDriftFwdOp")["second-process"]
    assert outcome == "broken"
    assert detail.startswith("the first process has the key 'PlantedDriftFwdOp@")


def test_a_cache_miss_is_caught(report: dict[str, Any]) -> None:
    """Of an op whose key is the same: its graph is not."""
    outcome, detail = checks(report, "PlantedMissFwdOp")["second-process"]
    assert outcome == "broken"
    assert detail.startswith("the second process counted ")
    assert "autograd_cache_miss 1" in detail


def test_a_program_that_cannot_be_run_elsewhere_is_caught(report: dict[str, Any]) -> None:
    outcome, detail = checks(report, "PlantedLostFwdOp")["export"]
    assert outcome == "broken"
    assert detail.startswith(
        "in the second process: KeyLookupError: PlantedLostFwdOp: the program was made for "
        "another version of the op (digest 0000, installed "
    )


def test_each_of_them_is_caught_by_one_check(report: dict[str, Any]) -> None:
    for op, check in {
        "PlantedDriftFwdOp": "second-process",
        "PlantedMissFwdOp": "second-process",
        "PlantedLostFwdOp": "export",
    }.items():
        found = checks(report, op)
        assert [name for name, (outcome, _) in found.items() if outcome == "broken"] == [check]


def test_what_cannot_be_loaded_is_named_and_takes_nothing_down(report: dict[str, Any]) -> None:
    (problem,) = [p for p in report["problems"] if "no_such_module" in p["what"]]
    assert problem == {
        "what": "tileops.contracts elsewhere = no_such_module",
        "reason": "ModuleNotFoundError: No module named 'no_such_module'",
    }


def test_a_package_that_ends_its_importer_ends_no_run(report: dict[str, Any]) -> None:
    (problem,) = [p for p in report["problems"] if "planted_leaving" in p["what"]]
    assert problem["reason"] == "SystemExit: no licence on this machine"


def test_the_report_says_where_and_with_what(report: dict[str, Any]) -> None:
    assert report["complete"] is True
    assert report["seed"] == 5
    assert report["devices"][0]["device"] == "cpu"
    assert {"planted-ops", "torch"} <= report["surroundings"]["versions"].keys()
    assert {"tilelang", "reference"} <= set(report["targets"])
    (op,) = [row for row in report["ops"] if row["op"] == "PlantedGoodFwdOp"]
    assert op["operators"] == [
        {
            "name": "tileops::contracts_planted_good_fwd",
            "schema": "tileops::contracts_planted_good_fwd(Tensor x, str key) -> Tensor",
            "tags": ["needs_exact_strides", "pt2_compliant_tag"],
        }
    ]
    served, refused = [row for row in report["subjects"] if row["op"] == "PlantedGoodFwdOp"][::-1]
    assert (served["target"], served["default"], served["serves"]) == ("reference", True, True)
    assert served["graph"] == ["tileops::contracts_planted_good_fwd"]
    assert (refused["target"], refused["serves"]) == ("tilelang", False)
    assert refused["reason"].startswith("PlantedGoodFwdOp: the target 'tilelang' serves CUDA")


def test_the_run_says_what_is_broken_and_fails(ran: tuple[int, str, str]) -> None:
    code, out, err = ran
    assert code == 1
    assert "BROKEN  PlantedNoCaseFwdOp: has-case: PlantedNoCaseFwdOp has no compile" in out
    assert "BROKEN  PlantedLostFwdOp-float32 on cpu by reference: export: in the second" in out
    assert "CANNOT BE LOADED  tileops.contracts elsewhere = no_such_module" in out
    assert "not applicable  cuda-graph: needs a CUDA device, and the call is on cpu (11)" in out
    assert "[........................] 1/9 ContractBumpFwdOp-float32 on cpu: who serves it" in err


def test_the_same_as_junit(site: Path, report: dict[str, Any]) -> None:
    root = xml.parse(site / "report.xml").getroot()
    assert (root.get("failures"), root.get("errors")) == ("4", str(len(report["problems"])))
    failed = {
        case.get("name"): case[0].get("message") for case in root.iter("testcase") if len(case)
    }
    assert (failed["PlantedNoCaseFwdOp: has-case"] or "").startswith("PlantedNoCaseFwdOp has no")
    skipped = failed["PlantedGoodFwdOp-float32 on cpu by reference: cuda-graph"]
    assert skipped == "needs a CUDA device, and the call is on cpu"
    count = len(report["ops"]) + sum(len(row["checks"]) or 1 for row in report["subjects"])
    assert root.get("tests") == str(count + len(report["problems"]))
    [installed] = [suite for suite in root if suite.get("name") == "installed"]
    assert installed.get("errors") == installed.get("tests") == str(len(report["problems"]))


def test_a_case_that_ends_its_process_is_reported_and_the_run_goes_on(site: Path) -> None:
    """With ``--isolate``; without, it would end the run."""
    words = ("contract", "--isolate", "--device", "cpu", "--json", "isolated.json")
    done = run(site, "-m", "tileops.core", *words, "--op", "PlantedDyingFwdOp")
    assert done.returncode == 1, done.stderr
    report = json.loads((site / "isolated.json").read_text())
    Draft202012Validator(load_schema("contract-report.schema.json")).validate(report)
    assert [(row["case"], row["checks"][0]["detail"]) for row in report["subjects"]] == [
        ("again", "the case's process ended with exit code 3"),
        ("float32", "the case's process ended with exit code 3"),
    ]
    assert "BROKEN  PlantedDyingFwdOp-again on cpu: process: the case's process" in done.stdout


def test_what_a_case_s_own_process_found_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checks are those of any other run."""
    register(CASES["one node"])
    in_process = [check for check in CHECKS if not check.together]
    monkeypatch.setattr(isolated, "run", functools.partial(isolated.run, checks=in_process))

    def here(request: dict[str, Any]) -> str:
        isolated.check_one(request)
        return ""

    monkeypatch.setattr(isolated, "run_child", here)
    found: dict[str, Any] = {"ops": [], "subjects": [], "seconds": 0.0}
    told: list[Any] = []
    isolated.run_isolated(
        Choice(ops=["ContractTwiceFwdOp"]),
        ["cpu"],
        targets=["reference"],
        seed=4,
        step=lambda *words: told.append(words),
        report=found,
    )
    assert told == [(1, 1, "ContractTwiceFwdOp-float32 on cpu")]
    (row,) = found["subjects"]
    outcomes = {one["check"]: one["outcome"] for one in row["checks"]}
    assert list(outcomes) == [check.name for check in in_process]
    assert {n for n, outcome in outcomes.items() if outcome != "held"} == {
        "same-graph",
        "cuda-graph",
        "reduce-overhead",
    }
    assert found["complete"] is True
    assert found["seconds"] > 0


def test_a_case_that_its_own_process_does_not_know_is_a_fault(tmp_path: Path) -> None:
    """Such as one whose label is another in each process: nothing of it was checked."""
    register(CASES["one node"])
    request = {
        "op": "ContractTwiceFwdOp",
        "case": "ContractTwiceFwdOp-elsewhere",
        "device": "cpu",
        "targets": [],
        "seed": 4,
        "output": str(tmp_path / "report.json"),
    }
    with pytest.raises(ContractError) as error:
        isolated.check_one(request)
    assert str(error.value) == (
        "no installed family registers the case ContractTwiceFwdOp-elsewhere in a fresh process"
    )
    assert not (tmp_path / "report.json").exists()


GIVEN_UP = """
import sys, time
from pathlib import Path
from tileops.core.contract.processes import TerminatedError, ended_in_order
with ended_in_order():
    try:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    except TerminatedError:
        Path(sys.argv[1]).touch()
"""


def test_a_case_s_process_that_is_given_up_ends_what_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, it would leave its fresh processes running and their folder behind."""

    class Child(subprocess.Popen[str]):
        def communicate(self, input: Any = None, timeout: float | None = None) -> Any:
            if timeout is None:
                assert self.stderr is not None
                assert self.stderr.readline() == "ready\n"
                raise KeyboardInterrupt
            return super().communicate(input, timeout)

    children: list[Child] = []

    def start(request: Any, environment: Any) -> Child:
        command = [sys.executable, "-c", GIVEN_UP, str(tmp_path / "ended")]
        children.append(Child(command, stderr=subprocess.PIPE, text=True))
        return children[0]

    monkeypatch.setattr(processes, "start_child", start)
    with pytest.raises(KeyboardInterrupt):
        processes.run_child({})
    assert (tmp_path / "ended").exists()
    assert children[0].returncode == 0


def test_what_xml_cannot_hold_is_left_out_of_it(report: dict[str, Any], tmp_path: Path) -> None:
    odd: dict[str, Any] = json.loads(json.dumps(report))
    odd["problems"] = [{"what": "a\x00b", "reason": "c\udcffd <&> \ufffe"}]
    write_junit(odd, tmp_path / "report.xml")
    case = next(xml.parse(tmp_path / "report.xml").iter("testcase"))
    assert (case.get("name"), case[0].text) == ("a?b", "c?d <&> ?")


def records(*rows: tuple[str, str, float | None, str]) -> list[dict[str, Any]]:
    return [
        {"place": [case, "cpu", ""], "do": do, "seconds": seconds, "problem": problem}
        for case, do, seconds, problem in rows
    ]


def test_a_process_that_died_names_the_case_and_blocks_the_later_ones() -> None:
    first = Subject(CASES["one node"], _cpu())
    second = Subject(CASES["out"], _cpu())
    later = Subject(CASES["composite"], _cpu())
    both = Processes([], 0)
    both._records[FIRST] = records(
        (first.case.name, "compile", None, ""),
        (first.case.name, "compile", 0.1, ""),
        (second.case.name, "compile", None, ""),
    )
    both._records[SECOND] = records(
        (first.case.name, "compile", None, ""), (first.case.name, "compile", 0.1, "wrong")
    )
    both._ends[FIRST] = "ended by signal 11: Fatal Python error"
    with pytest.raises(ContractError, match=r"^in the second process: wrong$"):
        both.found(first, "compile")
    with pytest.raises(ContractError, match=r"^in the first process: ended by signal 11: Fatal"):
        both.found(second, "compile")
    with pytest.raises(Blocked) as error:
        both.found(later, "compile")
    assert str(error.value) == (
        "ContractOutFwdOp-out is broken: the first process ended by signal 11: Fatal Python error "
        "there; --isolate gives each case processes of its own"
    )
    both.close()


def _cpu() -> Any:
    import torch

    return torch.device("cpu")


# -- comparing reports ---------------------------------------------------------------------------


def changed(report: dict[str, Any]) -> dict[str, Any]:
    old: dict[str, Any] = json.loads(json.dumps(report))
    good = next(r for r in old["subjects"] if r["op"] == "PlantedGoodFwdOp" and r["serves"])
    good["graph"] = ["aten.mul", *good["graph"]]
    for one in good["checks"]:
        if one["check"] == "strided":
            one["outcome"], one["detail"] = "broken", "stepped, eager: y has wrong values"
    good["checks"] = [one for one in good["checks"] if one["check"] != "keys"]
    lost = next(r for r in old["subjects"] if r["op"] == "PlantedLostFwdOp" and r["serves"])
    for one in lost["checks"]:
        if one["check"] == "export":
            one["outcome"] = "held"
    drift = next(r for r in old["subjects"] if r["op"] == "PlantedDriftFwdOp" and r["serves"])
    drift["serves"], drift["reason"], drift["checks"] = False, "it did not", []
    old["subjects"] = [r for r in old["subjects"] if r["op"] != "PlantedMissFwdOp"]
    old["subjects"].append({**good, "case": "another"})
    op = next(r for r in old["ops"] if r["op"] == "PlantedGoodFwdOp")
    op["operators"][0]["schema"] = "tileops::contracts_planted_good_fwd(Tensor x) -> Tensor"
    old["ops"] = [r for r in old["ops"] if r["op"] != "PlantedNoCaseFwdOp"]
    old["ops"].append({**op, "op": "PlantedGoneFwdOp"})
    old["asked"]["ops"] = report["asked"]["ops"] = []
    old["surroundings"]["versions"]["planted-ops"] = "0.9"
    old["targets"] = ["tilelang"]
    return old


def test_two_reports_say_which_contract_changed_and_how(report: dict[str, Any]) -> None:
    assert list(compare(report, report)) == ["no contract changed"]
    lines = list(compare(changed(report), report))
    good, by = "PlantedGoodFwdOp-float32 on cpu by reference", "on cpu by reference"
    key = "tileops::contracts_planted_good_fwd"
    assert [line for line in lines if "export" not in line] == [
        "planted-ops: 0.9 before, 1.0 now",
        "targets: tilelang before, tilelang, reference now",
        f"PlantedGoodFwdOp: the schema of {key} changed: {key}(Tensor x) -> Tensor before, "
        f"{key}(Tensor x, str key) -> Tensor now",
        "PlantedNoCaseFwdOp: appeared, with tileops::contracts_planted_no_case_fwd",
        "PlantedGoneFwdOp: vanished",
        "PlantedMissFwdOp-float32 on cpu by tilelang: appeared, not served: "
        + next(r for r in report["subjects"] if r["op"] == "PlantedMissFwdOp")["reason"],
        f"PlantedDriftFwdOp-float32 {by}: is served now",
        f"{good}: the graph changed: aten.mul vanished",
        f"{good}: keys appeared: held",
        f"{good}: strided: broken before, now held",
        f"PlantedMissFwdOp-float32 {by}: appeared",
        f"PlantedGoodFwdOp-another {by}: vanished",
        "11 changes",
    ]
    (broken,) = [line for line in lines if "export" in line]
    assert broken.startswith(
        f"PlantedLostFwdOp-float32 {by}: export: held before, now broken: in the second process: "
    )


def test_a_run_that_was_asked_for_less_misses_nothing_that_it_was_not_asked_for(
    report: dict[str, Any],
) -> None:
    less: dict[str, Any] = json.loads(json.dumps(report))
    less["asked"]["ops"] = ["PlantedGoodFwdOp"]
    for part in ("ops", "subjects"):
        less[part] = [row for row in less[part] if row["op"] == "PlantedGoodFwdOp"]
    assert list(comparison.compare(report, less)) == ["no contract changed"]
    # The other way round there are more, which have not appeared: nobody looked for them before.
    more, *rest = comparison.compare(less, report)
    count = sum(row["op"] != "PlantedGoodFwdOp" for row in (*report["ops"], *report["subjects"]))
    assert more == f"{count} ops and cases are not compared: the older run was not asked for them"
    assert rest == ["no contract changed"]
