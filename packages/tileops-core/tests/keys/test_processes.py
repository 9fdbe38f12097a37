"""What one process leaves for another: keys, caches, exported programs, packages, pickles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def run(mode: str, folder: Path) -> dict[str, Any]:
    # A family is found by its distribution's entry points: this folder says that it is one.
    known = folder / "site"
    info = known / "key_samples-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: key-samples\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tileops.families]\nzz_samples = key_samples\n")
    path = [str(known), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "key_programs.py"), mode, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def first(folder: Path) -> dict[str, Any]:
    if shutil.which("g++") is None:
        pytest.skip("inductor's CPU code needs g++")
    return run("make", folder)


@pytest.fixture(scope="module")
def second(first: dict[str, Any], folder: Path) -> dict[str, Any]:
    return run("use", folder)


def test_equal_processes_give_equal_keys(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first["keys"] == second["keys"]
    assert [key.rpartition("#")[2] for key in first["keys"]] == ["0", "1", "2", "0", "0", "0"]


def test_a_second_process_finds_what_the_first_compiled(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    """In inductor's and in AOTAutograd's cache, as it does for PyTorch's own operators."""
    hit = {"fxgraph_cache_hit": 1, "autograd_cache_hit": 1}
    missed = {"fxgraph_cache_miss": 1, "autograd_cache_miss": 1}
    for name in ("plain", "op"):
        (before, seconds, right), (after, again, still) = first[name], second[name]
        assert (before, after) == (missed, hit)
        assert right
        assert still
        print(f"{name}: {seconds:.2f} s, in a second process {again:.2f} s")


def test_two_versions_of_an_op_share_no_artefact(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    """With one key, another output dtype crashed and another written input lost the write."""
    for process in (first, second):
        assert process["version"]["right"]
        assert process["version"]["caches"]["autograd_cache_miss"] == 1
    for old, new in zip(first["version"]["keys"], second["version"]["keys"], strict=True):
        assert old.partition("@")[0] == new.partition("@")[0]
        assert old != new


def test_an_exported_program_holds_the_description(first: dict[str, Any]) -> None:
    """And says that it does not hold the target."""
    (key,) = first["exported keys"]
    assert key == first["keys"][0].partition("#")[0]
    text = (
        "ScaleFwdOp: the exported program does not hold target='reference'; where it is loaded, "
        "the process default or the device chooses the target"
    )
    assert first["warnings"] == [text, text]


def test_a_program_runs_where_the_families_were_loaded(second: dict[str, Any]) -> None:
    """Live instances of the same params, with another target, are not what it calls."""
    assert "zz_samples" in second["families"]
    assert second["strict=False"]
    assert second["strict=True"]
    assert second["compiled False"]
    assert second["compiled True"]


def test_a_package_runs_where_the_families_were_loaded(second: dict[str, Any]) -> None:
    """Its op has a param with quotes and backslashes, which stand in C++ source and in JSON."""
    assert second["aoti"]


def test_a_program_without_its_family_says_what_to_import(second: dict[str, Any]) -> None:
    """PyTorch's own words: the operator's name begins with tileops:: and its family."""
    said = second["export without the family"]
    assert "failed to resolve torch.ops.tileops.keys_scale_fwd.default to an operator" in said
    assert "Please import the custom op to register it before deserializing" in said
    assert "Could not find schema for tileops::keys_typed_fwd" in second["aoti without the family"]


def test_pickles_of_another_process(second: dict[str, Any]) -> None:
    assert second["shared"]
    assert second["noted"] == [True, ["seen"], "reference"]
    assert second["own key"] == "0"
    assert second["module"]
