"""Plugins that end, interrupt or fork while they load, and targets that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops.core import Target, register_target, target_names
from tileops.core.errors import DefinitionError, ParamError
from tileops.core.params import check_target

PLUGINS = """
import os
import sys

from tileops.core import Target


def nobody(device):
    return False


def first():
    return Target("first", nobody, print)


def leaves():
    sys.exit("needs a licence")


def interrupted():
    if os.environ.pop("INTERRUPT", None):
        raise KeyboardInterrupt
    return Target("interrupted", nobody, print)
"""


def run(folder: Path, program: str, *names: str) -> list[str]:
    """What ``program`` prints in a process that has these of the plugins above."""
    info = folder / "some_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugins\nVersion: 1.0\n")
    points = "".join(f"{name} = some_plugins:{name}\n" for name in names)
    (info / "entry_points.txt").write_text(f"[tileops.targets]\n{points}")
    (folder / "some_plugins.py").write_text(PLUGINS)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path, "INTERRUPT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


def test_an_interrupt_while_plugins_load_loses_none(tmp_path: Path) -> None:
    """Those before it are registered once, it is loaded again, and so are those behind it."""
    program = """
from tileops.core import plugins, target_names
try:
    target_names()
except KeyboardInterrupt:
    print("interrupted")
print(target_names(), plugins.plugin_failures())
"""
    assert run(tmp_path, program, "first", "interrupted") == [
        "interrupted",
        "('first', 'interrupted', 'tilelang', 'reference') ()",
    ]


def test_a_plugin_that_exits_is_one_that_fails(tmp_path: Path) -> None:
    program = """
from tileops.core import plugins, target_names
print(target_names())
print(*plugins.plugin_failures())
"""
    assert run(tmp_path, program, "leaves", "first") == [
        "('first', 'tilelang', 'reference')",
        "the target plugin 'leaves' (some_plugins:leaves) failed to load: SystemExit: needs a "
        "licence",
    ]


def test_a_child_forked_while_plugins_load_loads_them(tmp_path: Path) -> None:
    program = """
import os, threading
from tileops.core import target_names
import some_plugins
started, go = threading.Event(), threading.Event()
made = some_plugins.first
def first():
    if threading.current_thread() is not threading.main_thread():
        started.set()
        go.wait()
    return made()
some_plugins.first = first
thread = threading.Thread(target=target_names)
thread.start()
started.wait()
child = os.fork()
if child == 0:
    print(target_names(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
go.set()
thread.join()
print(target_names())
"""
    assert run(tmp_path, program, "first") == ["('first', 'tilelang', 'reference')"] * 2


def nobody(device: torch.device) -> bool:
    return False


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            (5, nobody, print),
            "a target's name must be a string that is not empty, and one is named 5",
        ),
        (
            ("", nobody, print),
            "a target's name must be a string that is not empty, and one is named ''",
        ),
        (
            ("mine", None, print),
            "the target 'mine' has None for claims, which cannot be called; give it a function",
        ),
        (
            ("mine", nobody, 3),
            "the target 'mine' has 3 for kernel, which cannot be called; give it a function",
        ),
    ],
)
def test_what_is_no_target_is_not_registered(target: tuple[Any, Any, Any], message: str) -> None:
    before = target_names()
    with pytest.raises(DefinitionError) as error:
        register_target(Target(*target))
    assert str(error.value) == message
    assert target_names() == before


def test_an_empty_name_is_not_no_target() -> None:
    """It would leave the choice to the device, in silence."""
    with pytest.raises(ParamError) as error:
        check_target("SomeOp", "")
    assert str(error.value) == "SomeOp: target is '', but it must be the name of a target, or None"
