"""The first command on a fresh machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.bootstrap import ROOT, hatch_command, uv_settings, wants_work_environment


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], ["run", "demo"]),
        (["demo"], ["run", "demo"]),
        (["test", "-k", "layout"], ["run", "test", "-k", "layout"]),
        (["hatch", "run", "build:all"], ["run", "build:all"]),
        (["hatch"], None),
        (["tset"], None),
    ],
)
def test_bootstrap_translates_its_command(arguments: list[str], command: list[str] | None) -> None:
    assert hatch_command(arguments) == command


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("run test -k layout", True),
        ("run default:test", True),
        ("run", True),
        ("env show", True),
        ("run build:all", False),
        ("run +family=norm isolated:test -q", False),
    ],
)
def test_only_commands_of_the_work_environment_wait_for_it(command: str, wanted: bool) -> None:
    """Building wheels needs no torch."""
    assert wants_work_environment(command.split()) is wanted


def test_an_empty_argument_is_none_of_hatch_s() -> None:
    assert wants_work_environment(["run", "python", "-c", ""])
    assert wants_work_environment(["run", ""])


def test_bootstrap_tells_uv_what_pip_was_told() -> None:
    listed = "\n".join(
        [
            "global.extra-index-url='\\nfile:///mirror/one\\nfile:///mirror/two'",
            "global.find-links='/wheels /more-wheels'",
            "global.index-url='file:///mirror/main'",
            "global.timeout='60'",
        ]
    )
    assert uv_settings(listed) == {
        "UV_DEFAULT_INDEX": "file:///mirror/main",
        "UV_FIND_LINKS": "/wheels,/more-wheels",
        "UV_INDEX": "file:///mirror/one file:///mirror/two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


@pytest.mark.parametrize("first", [0, 1])
def test_the_environment_goes_before_pip_s_files(first: int) -> None:
    lines = [":env:.find-links='/from-variable'", "global.find-links='/from-file'"]
    listed = f"{lines[first]}\n{lines[1 - first]}"
    assert uv_settings(listed) == {"UV_FIND_LINKS": "/from-variable"}


def test_bootstrap_leaves_uv_alone_when_pip_has_no_settings() -> None:
    assert uv_settings("") == {}


def test_bootstrap_refuses_a_python_that_is_too_old(tmp_path: Path) -> None:
    """The refusal says what is needed and how to name another Python."""
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.18"\n', "ascii")
    old.chmod(0o755)
    done = subprocess.run(
        [ROOT / "tools" / "bootstrap", "test"],
        env={"TILEOPS_PYTHON": str(old), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "bootstrap: TileOPs needs Python 3.10 or newer; found: Python 3.9.18.",
        "bootstrap: install one, or name one: "
        f"TILEOPS_PYTHON=/path/to/python3.11 {ROOT}/tools/bootstrap test",
    ]
