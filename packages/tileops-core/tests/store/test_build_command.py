"""``tileops build`` fills a store for any architecture, on a machine without a GPU."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core import programs
from tileops.core.build_command import Choice, build_all
from tileops.core.cli import main
from tileops.core.planning import planning
from tileops.core.store import entry
from tileops.core.tilelang_backend import assume_arch, device_arch

ANSWER = Choice(ops=["AnswerFwdOp"])


@pytest.fixture
def said(kernels: ModuleType) -> list[str]:
    """What the command has said so far; the seconds that a build took left out."""
    kernels.builds.clear()
    return []


def run(said: list[str], choice: Choice, *archs: str, jobs: int = 1) -> int:
    return build_all(choice, archs, jobs, lambda line: said.append(line.partition(" in 0.")[0]))


def test_one_build_for_all_workloads_that_share_a_kernel(
    kernels: ModuleType, folder: Path, said: list[str]
) -> None:
    """The number of rows is in no identity: two of the three workloads need the same kernel."""
    assert run(said, ANSWER, "sm_80", "sm_90a") == 0
    assert said == [
        "[1/4] AnswerFwdOp sm_80 AnswerKernel(16, 'sm_80', ) for small, tall: built",
        "[2/4] AnswerFwdOp sm_80 AnswerKernel(32, 'sm_80', ) for wide: built",
        "[3/4] AnswerFwdOp sm_90a AnswerKernel(16, 'sm_90a', ) for small, tall: built",
        "[4/4] AnswerFwdOp sm_90a AnswerKernel(32, 'sm_90a', ) for wide: built",
        f"4 built; the store is {folder}",
    ]
    assert kernels.builds == ["sm_80", "sm_80", "sm_90a", "sm_90a"]
    assert len(os.listdir(folder)) == 4


def test_a_call_finds_what_was_built_for_it(kernels: ModuleType, said: list[str]) -> None:
    """The key that the command stores under is the one that a process with the GPU asks for."""
    run(said, ANSWER, "sm_90a")
    with assume_arch("sm_90a"):
        call = kernels.Call(torch.device("cuda", 1), 32)
        identity, _ = kernels.AnswerKernel.entry_for(call)
    assert kernels.get(identity, kernels.never).launch() == 42


def test_what_is_stored_is_not_built_again(
    kernels: ModuleType, folder: Path, said: list[str], forget: Any
) -> None:
    run(said, Choice(ops=["AnswerFwdOp"], workloads=["wide"]), "sm_80")
    said.clear()
    forget()
    assert run(said, ANSWER, "sm_80") == 0
    assert said == [
        "[1/2] AnswerFwdOp sm_80 AnswerKernel(32, 'sm_80', ) for wide: already there",
        "[2/2] AnswerFwdOp sm_80 AnswerKernel(16, 'sm_80', ) for small, tall: built",
        f"1 built, 1 already there; the store is {folder}",
    ]


def test_a_failure_is_told_and_the_rest_is_built(
    kernels: ModuleType, folder: Path, said: list[str]
) -> None:
    choice = Choice(ops=["AnswerFwdOp"], workloads=["wide"])
    assert run(said, choice, "sm_89", "sm_75", "sm_80") == 1
    assert said == [
        "[1/3] AnswerFwdOp sm_75 for wide: not served: AnswerKernel: sm_75 has no answer; use "
        "target='reference'",
        "[2/3] AnswerFwdOp sm_89 AnswerKernel(32, 'sm_89', ) for wide: failed: AnswerFwdOp: the "
        "kernel for Call(device=device(type='meta'), width=32) could not be built: RuntimeError: "
        "nvcc said no",
        "[3/3] AnswerFwdOp sm_80 AnswerKernel(32, 'sm_80', ) for wide: built",
        f"1 built, 1 not served, 1 failed; the store is {folder}",
    ]


def test_an_architecture_without_kernels_alone_is_a_failure(folder: Path, said: list[str]) -> None:
    """Nothing was filled: a script that goes on would ship an empty store."""
    assert run(said, ANSWER, "sm_75") == 1
    assert said[-1] == f"1 not served; the store is {folder}"


def test_an_op_that_calls_ops_needs_their_kernels(
    kernels: ModuleType, folder: Path, said: list[str]
) -> None:
    """And its written input is a meta tensor: nothing is written."""
    assert run(said, Choice(ops=["AnswerInPlaceFwdOp"], workloads=["wide"]), "sm_80") == 0
    assert said == [
        "[1/1] AnswerFwdOp sm_80 AnswerKernel(16, 'sm_80', ) for wide: built",
        f"1 built; the store is {folder}",
    ]


def test_an_op_that_reads_values_cannot_be_planned(folder: Path, said: list[str]) -> None:
    assert run(said, Choice(ops=["AnswerByValueFwdOp"], workloads=["wide"]), "sm_80") == 1
    assert said == [
        "[1/1] AnswerByValueFwdOp sm_80 for wide: failed: Tensor.item() cannot be called on meta "
        "tensors",
        f"1 failed; the store is {folder}",
    ]


def test_what_the_store_did_not_take_is_a_failure(
    kernels: ModuleType, folder: Path, said: list[str]
) -> None:
    """The build itself went well, but the command's purpose is the store."""
    folder.parent.mkdir()
    folder.write_text("not a folder")
    assert run(said, Choice(ops=["AnswerFwdOp"], workloads=["wide"]), "sm_80") == 1
    assert said == [
        "[1/1] AnswerFwdOp sm_80 AnswerKernel(32, 'sm_80', ) for wide: failed: it was built, but "
        "the store did not take it; the log says why",
        f"1 failed; the store is {folder}",
    ]


@pytest.mark.parametrize(
    ("choice", "archs", "message"),
    [
        (ANSWER, (), "no GPU is visible: say for which to build, as in --arch sm_90a"),
        (ANSWER, ("sm_90",), "kernels are built for sm_90a, not for 'sm_90'"),
        (
            ANSWER,
            ("hopper",),
            "'hopper' is no architecture; they are written as sm_80 or sm_90a",
        ),
        (
            Choice(ops=["AnswerFwdOp"], workloads=["huge"]),
            ("sm_80",),
            "there is no workload 'huge'; there are: small, tall, wide",
        ),
        (
            Choice(ops=["AnswerFwdOp"], families=["values"]),
            ("sm_80",),
            "no installed op is of that name and family",
        ),
    ],
)
def test_what_cannot_be_built_for_is_told(
    kernels: ModuleType,
    said: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    choice: Choice,
    archs: tuple[str, ...],
    message: str,
) -> None:
    """An architecture under which no call looks would fill the store with what nobody finds."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert run(said, choice, *archs) == 1
    assert said == []
    assert capsys.readouterr().err == f"tileops build: {message}\n"


def test_the_visible_gpus_are_what_is_built_for(
    kernels: ModuleType, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cards of one architecture, simulated, need one kernel."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert run(said, Choice(ops=["AnswerFwdOp"], workloads=["wide"])) == 0
    assert kernels.builds == ["sm_90a"]


def test_a_store_that_is_off_cannot_be_filled(
    kernels: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEOPS_CACHE_DIR", "off")
    assert main(["build", "--op", "AnswerFwdOp", "--arch", "sm_80"]) == 1
    assert capsys.readouterr().err == (
        "tileops build: the store is off: set TILEOPS_CACHE_DIR to the folder to fill\n"
    )


def test_the_command_line_reaches_every_option(
    kernels: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--op", "AnswerFwdOp", "--family", "answers", "--workload", "wide", "small"]
    assert main(["build", *words, "--arch", "sm_80", "sm_90a", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.endswith(f"4 built; the store is {folder}\n")
    with pytest.raises(SystemExit):
        main(["build", "--jobs", "0"])
    assert "argument --jobs: 0 is below 1" in capsys.readouterr().err


def test_the_cache_is_shown_and_cleared(
    kernels: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str], forget: Any
) -> None:
    """Nothing is evicted, so this is how its size is seen and mended."""
    for identity in (1, 2):
        kernels.get(identity)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{folder}: 2 kernels, {size:.1f} MiB\n"
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{folder}: 2 kernels, {size:.1f} MiB\nremoved 2\n"
    assert os.listdir(folder) == []
    forget()
    assert type(kernels.get(1)) is kernels.Program


def test_a_plan_is_what_a_call_asks_for(kernels: ModuleType) -> None:
    """And a call that the checks refuse is refused here, before anything is built for it."""
    op = kernels.AnswerFwdOp()
    with planning() as requests:
        y = op(torch.empty(3, 16, device="meta"))
        with pytest.raises(Exception, match=r"^AnswerFwdOp: x has shape \[3\]"):
            op(torch.empty(3, device="meta"))
    assert (y.shape, y.device.type) == ((3, 16), "meta")
    (request,) = requests
    assert request.op is op
    assert (request.interface, request.call) == ("main", kernels.Call(torch.device("meta"), 16))
    with assume_arch("sm_80"):
        build = request.build()
    assert build.kernel is kernels.AnswerKernel
    assert build.identity == (16, "sm_80")


def test_an_assumed_architecture_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    with contextlib.suppress(KeyError), assume_arch("sm_100a"):
        assert device_arch() == "sm_100a"
        raise KeyError
    assert device_arch() == "sm_89"


def test_an_entry_that_another_version_wrote_is_built_again(
    kernels: ModuleType, folder: Path, said: list[str]
) -> None:
    """Looking whether it is there ended the command, as nobody had read its facts before."""
    run(said, ANSWER, "sm_90a")
    path = next(folder.glob("*.so"))
    data = path.read_bytes()
    text = json.dumps({"key": "some", "written by": "another"}).encode()
    digest = hashlib.sha256(text).digest()
    path.write_bytes(text + entry._FOOTER.pack(b"TILEOPS", entry.FORMAT, 0, len(text), digest))
    with programs._lock:
        programs._programs.clear()
    assert run(said, ANSWER, "sm_90a") == 0
    assert said[-1] == f"1 built, 1 already there; the store is {folder}"
    assert path.read_bytes() == data


def test_what_cannot_be_cleared_is_told(
    kernels: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = folder / "stuck.so"
    stuck.mkdir(parents=True)
    assert main(["cache", "--clear"]) == 1
    assert capsys.readouterr().err == (
        f"tileops cache: not everything could be removed: [Errno 21] Is a directory: '{stuck}'\n"
    )
