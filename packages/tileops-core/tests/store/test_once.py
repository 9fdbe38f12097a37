"""A program is built once: by eight threads, by eight processes, and never by a later one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core import programs
from tileops.core.errors import CaptureError, KernelBuildError


def test_eight_cold_threads_build_once(kernels: ModuleType, folder: Path, tmp_path: Path) -> None:
    log, found = tmp_path / "builds", []
    build = kernels.slow_and_counted(log)
    threads = [
        threading.Thread(target=lambda: found.append(kernels.get("shared", build)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log.read_text().splitlines()) == 1
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert os.listdir(folder) == [kernels.path("shared").name]


def test_eight_cold_processes_build_once(kernels: ModuleType, folder: Path, tmp_path: Path) -> None:
    """Eight ranks of one host start together: seven wait, and load what the first one built."""
    log = tmp_path / "builds"
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import stored_kernels, "
        f"pathlib; stored_kernels.processes(8, pathlib.Path({str(log)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[42] * 8}\n"
    assert done.stderr == ""
    assert len(log.read_text().splitlines()) == 1
    assert os.listdir(folder) == [kernels.path("shared").name]


def test_a_later_process_loads_what_another_built(kernels: ModuleType, forget: Any) -> None:
    """And gets a program like the one that was built: it launches, exports, and has its source."""
    kernels.get("kept")
    forget()
    loaded = kernels.get("kept", kernels.never)
    assert type(loaded).__module__ == "tileops.core.tilelang_backend"
    assert loaded.launch(1, 2.0) == 42
    assert (loaded.symbol, loaded.source) == ("answer", "int answer;")


def test_what_was_loaded_exports_a_library_that_loads(
    kernels: ModuleType, forget: Any, tmp_path: Path
) -> None:
    from tileops.core.tilelang_backend import load

    kernels.get("kept")
    forget()
    kernels.get("kept", kernels.never).export(str(tmp_path / "copy.so"))
    assert load(tmp_path / "copy.so", "answer")() == 42


def test_programs_without_an_export_or_a_kernel_stay_in_memory(
    kernels: ModuleType, folder: Path
) -> None:
    """A plugin's program that cannot be written down is served all the same."""
    program = object()
    assert kernels.get("no export", lambda: program) is program
    assert kernels.get("no export", kernels.never) is program
    assert kernels.get("no kernel", kernel=None).launch() == 42
    assert not folder.exists() or os.listdir(folder) == []


def test_identities_that_compare_equal_are_told_apart(kernels: ModuleType) -> None:
    """1, 1.0 and True are one key of a dict, and may be three kernels."""
    programs = {id(kernels.get(identity)) for identity in ((1,), (1.0,), (True,))}
    assert len(programs) == 3


def test_two_devices_of_one_architecture_share_a_program(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built with the device of the call that came first current, and not built again."""
    current: list[torch.device] = []

    class Device:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def __enter__(self) -> None:
            current.append(self.device)

        def __exit__(self, *_: object) -> None:
            current.append(torch.device("cpu"))

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    seen = []

    def build() -> Any:
        seen.append(current[-1])
        return kernels.Program()

    first = kernels.get("both", build, device="cuda:1")
    assert kernels.get("both", build, device="cuda:0") is first
    assert seen == [torch.device("cuda:1")]
    assert current == [torch.device("cuda:1"), torch.device("cpu")]


def test_nothing_is_loaded_or_built_while_a_graph_is_captured(
    kernels: ModuleType, forget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading a CUDA module would break the capture as building does; what is in memory serves."""
    kernels.get("stored")
    forget()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(CaptureError) as error:
        kernels.get("stored", kernels.never, device="cuda:0")
    assert str(error.value) == (
        "AnswerOp: no kernel is built for [3], and none can be built while a CUDA graph is "
        "captured; call the op once with tensors of this shape before the capture, then capture "
        "again"
    )
    loaded = kernels.get("stored", kernels.never)
    assert kernels.get("stored", kernels.never, device="cuda:0") is loaded


def test_an_interrupted_build_leaves_nothing_behind(kernels: ModuleType, folder: Path) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kernels.get("again", interrupted)
    assert os.listdir(folder) == []
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(kernels.get("again")), daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert found[0].launch() == 42


def test_a_failed_build_leaves_nothing_behind(kernels: ModuleType, folder: Path) -> None:
    def fails() -> Any:
        raise RuntimeError("nvcc said no")

    with pytest.raises(KernelBuildError) as error:
        kernels.get("again", fails)
    assert (
        str(error.value)
        == "AnswerOp: the kernel for [3] could not be built: RuntimeError: nvcc said no"
    )
    assert os.listdir(folder) == []
    assert kernels.get("again").launch() == 42


def test_a_build_that_needs_itself_is_told_so(kernels: ModuleType) -> None:
    """It would wait for its own lock for ever."""
    with pytest.raises(KernelBuildError) as error:
        kernels.get("itself", lambda: kernels.get("itself"))
    assert str(error.value) == (
        "AnswerOp: the kernel for [3] could not be built: AnswerOp: the kernel for [3] needs "
        "itself to be built"
    )


def test_a_build_may_need_another_program(kernels: ModuleType) -> None:
    assert kernels.get("outer", lambda: kernels.get("inner")) is kernels.get("inner")


def test_a_child_forked_during_a_build_waits_for_it_and_loads(
    kernels: ModuleType, folder: Path
) -> None:
    """The child has the parent's locks as they were, but not the thread that would release them."""
    started, finish = threading.Event(), threading.Event()

    def build() -> Any:
        started.set()
        finish.wait(20)
        return kernels.Program()

    thread = threading.Thread(target=kernels.get, args=("forked", build))
    thread.start()
    started.wait(20)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for ever fails the test
        status = 1
        try:
            status = int(kernels.get("forked", kernels.never).launch())
        finally:
            os._exit(status)
    finish.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert os.listdir(folder) == [kernels.path("forked").name]


def test_memory_holds_a_bounded_number_of_programs(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that serves ever new widths would hold every kernel that it ever built; those
    asked for lately stay, and a forgotten one comes from the store."""
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 2)
    first, second = kernels.get(1), kernels.get(2)
    assert kernels.get(1) is first
    kernels.get(3)
    assert kernels.get(1, kernels.never) is first
    assert kernels.get(2, kernels.never) is not second
    assert len(list(programs.iter_programs())) == 2


@pytest.mark.parametrize(
    ("setting", "stored"),
    [("/data/cache", "none is stored in /data/cache/kernels"), ("off", "the store is off")],
)
def test_no_compiler_and_no_stored_kernel_are_one_error(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, setting: str, stored: str
) -> None:
    """Either would mend it, so the message names both, and what to do about each."""
    if setting != "off":
        monkeypatch.setattr("tileops.core.store.Store.lock", lambda *_: threading.Lock())
    monkeypatch.setenv("TILEOPS_CACHE_DIR", setting)
    with pytest.raises(KernelBuildError) as error:
        kernels.get("nowhere", kernels.no_compiler)
    assert str(error.value) == (
        f"AnswerOp: the kernel for [3] cannot be built here and is not stored: there is no nvcc "
        f"(looked on PATH); {stored}. Run `tileops build` on a machine that has nvcc and let "
        f"TILEOPS_CACHE_DIR name the folder that it filled, or use target='reference'"
    )
