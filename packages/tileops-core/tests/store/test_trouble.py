"""Whatever is wrong with the folder or an entry: one log record, and the call is served."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tileops.core.store import entry, lock

Forget = Callable[[], None]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def repacked(data: bytes, key: str, library: bytes | None = None) -> bytes:
    """An entry that is whole, of another key or another library."""
    kept = data[: data.rindex(b'{"key"')] if library is None else library
    return kept + entry.pack(kept, entry.Facts(key, "answer", "int answer;", None))


def with_facts(data: bytes, facts: dict[str, object]) -> bytes:
    """An entry that is whole and says something else of its library."""
    kept = data[: data.rindex(b'{"key"')]
    text = json.dumps(facts).encode()
    digest = hashlib.sha256(kept + text).digest()
    footer = entry._FOOTER.pack(b"TILEOPS", entry.FORMAT, len(kept), len(text), digest)
    return kept + text + footer


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data, key: b"", "it is truncated"),
        (lambda data, key: data[:-1], "it is truncated, or no entry of this store"),
        (lambda data, key: data[100:], "its checksum does not match its bytes"),
        (lambda data, key: flipped(data), "its checksum does not match its bytes"),
        (lambda data, key: b"\0" * 999, "it is truncated, or no entry of this store"),
        (
            lambda data, key: data[:-49] + b"\x07" + data[-48:],
            "it is of format 7, and this version reads format 1",
        ),
        (lambda data, key: repacked(data, "another key"), "it was stored under another key"),
        (
            lambda data, key: with_facts(data, {"key": key, "symbol": "answer", "newer": 1}),
            "what it says about its library is not what this version reads",
        ),
    ],
)
def test_an_entry_that_cannot_be_used_is_built_again(
    kernels: ModuleType,
    forget: Forget,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytes, str], bytes],
    reason: str,
) -> None:
    """A disk filled up, a copy broke off, or another version wrote there."""
    kernels.get("kept")
    path = kernels.path("kept")
    whole = path.read_bytes()
    path.write_bytes(damage(whole, kernels.key("kept")))
    forget()
    assert type(kernels.get("kept")) is kernels.Program
    assert said(caplog) == [f"the stored kernel {path} is not used: {reason}; it is built again"]
    assert path.read_bytes() == whole
    forget()
    assert kernels.get("kept", kernels.never).launch() == 42


def test_a_whole_entry_that_does_not_load_is_built_again(
    kernels: ModuleType, forget: Forget, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder mounted without the right to execute gives this, with an entry that is in order."""
    kernels.get("kept")
    path = kernels.path("kept")
    whole = path.read_bytes()
    path.write_bytes(repacked(whole, kernels.key("kept"), b"no library"))
    forget()
    assert type(kernels.get("kept")) is kernels.Program
    (message,) = said(caplog)
    assert re.fullmatch(
        rf"the stored kernel {re.escape(str(path))} is not used: "
        r"(?s:.*)(file too short|invalid ELF header)(?s:.*); it is built again",
        message,
    )
    assert path.read_bytes() == whole


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    """Root may write anywhere: for a while, this process is somebody who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def complaint(folder: Path, problem: str) -> str:
    return (
        f"kernels cannot be written in the store {folder}: {problem}; this process builds what it "
        f"needs and goes on. Set TILEOPS_CACHE_DIR to a folder that can be written, or to 'off'"
    )


def test_a_read_only_folder_serves_what_it_holds_and_the_rest_is_built(
    kernels: ModuleType,
    forget: Forget,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An image ships a filled store; its user may not write there."""
    kernels.get("kept")
    forget()
    for parent in (*reversed(folder.parents[:4]), folder):
        parent.chmod(0o555)
    try:
        with as_somebody_else():
            assert kernels.get("kept", kernels.never).launch() == 42
            assert said(caplog) == []
            assert kernels.get("new").launch() == 42
            assert kernels.get("newer").launch() == 42
    finally:
        for parent in (*reversed(folder.parents[:4]), folder):
            parent.chmod(0o755)
    locked = kernels.path("new").with_suffix(".lock")
    assert said(caplog) == [complaint(folder, f"[Errno 13] Permission denied: '{locked}'")]
    assert os.listdir(folder) == [kernels.path("kept").name]


def test_a_folder_that_may_not_be_read_is_done_without(
    kernels: ModuleType, forget: Forget, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernels.get("kept")
    forget()
    path = kernels.path("kept")
    folder.parent.chmod(0)
    try:
        with as_somebody_else():
            assert type(kernels.get("kept")) is kernels.Program
    finally:
        folder.parent.chmod(0o755)
    problem = f"[Errno 13] Permission denied: '{path}'"
    assert said(caplog) == [complaint(folder, problem).replace("written in", "read in", 1)]


def test_a_folder_that_cannot_be_made_is_done_without(
    kernels: ModuleType, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its parent is a file."""
    folder.parent.write_text("not a folder")
    assert kernels.get("new").launch() == 42
    assert kernels.get("newer").launch() == 42
    (message,) = said(caplog)
    assert message.startswith(f"kernels cannot be read in the store {folder}: [Errno 20] Not a dir")


def test_a_full_disk_keeps_nothing_of_an_entry(
    kernels: ModuleType, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was written before the disk was full is taken away again."""

    class Large(kernels.Program):  # type: ignore[misc, name-defined]
        def export(self, path: str) -> None:
            Path(path).write_bytes(b"some of it")
            with open("/dev/full", "wb") as full:
                full.write(b"the rest")

    program = kernels.get("large", Large)
    assert program.launch() == 42
    assert kernels.get("larger", Large).launch() == 42
    assert said(caplog) == [complaint(folder, "[Errno 28] No space left on device")]
    assert os.listdir(folder) == []


def test_a_program_that_fails_to_export_is_served(
    kernels: ModuleType, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(kernels.Program):  # type: ignore[misc, name-defined]
        def export(self, path: str) -> None:
            raise RuntimeError("no linker")

    assert kernels.get("stubborn", Stubborn).launch() == 42
    assert said(caplog) == [complaint(folder, "no linker")]
    assert os.listdir(folder) == []


def test_what_a_killed_writer_left_is_taken_away(kernels: ModuleType, folder: Path) -> None:
    """It is no entry, and would stay for ever."""
    folder.mkdir(parents=True)
    path = kernels.path("kept")
    (folder / f".{path.stem}.4242.0badcafe.so").write_bytes(b"half of it")
    (folder / ".another.4242.0badcafe.so").write_bytes(b"being written")
    kernels.get("kept")
    assert sorted(os.listdir(folder)) == [".another.4242.0badcafe.so", path.name]


def test_a_file_system_without_locks_is_stored_to_all_the_same(
    kernels: ModuleType,
    forget: Forget,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some network file systems have none: two processes may then both build, and the last one's
    entry stays."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    kernels.get("kept")
    assert said(caplog) == [complaint(folder, "[Errno 37] No locks available")]
    forget()
    assert kernels.get("kept", kernels.never).launch() == 42


def test_a_lock_that_is_never_let_go_of_is_not_waited_for_for_ever(
    kernels: ModuleType,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    folder.mkdir(parents=True)
    held = kernels.path("kept").with_suffix(".lock")
    with lock.locked(str(held)):
        assert kernels.get("kept").launch() == 42
    problem = f"the lock {held} has been held for 0.1 s by another process"
    assert said(caplog) == [complaint(folder, problem)]
    assert os.listdir(folder) == [kernels.path("kept").name]


def test_a_lock_lets_one_in_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "a.lock")
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(5):
            with lock.locked(path):
                inside.append(1)
                time.sleep(0.002)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20
    assert os.listdir(tmp_path) == []


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened the file before its holder removed it would be let in beside the next one."""
    path = str(tmp_path / "a.lock")
    flock = fcntl.flock
    with contextlib.ExitStack() as rival:

        def late(descriptor: int, how: int) -> None:
            monkeypatch.setattr(fcntl, "flock", flock)
            os.unlink(path)
            rival.enter_context(lock.locked(path))
            flock(descriptor, how)

        monkeypatch.setattr(fcntl, "flock", late)
        with pytest.raises(TimeoutError) as error, lock.locked(path, patience=0.1):
            pass
    assert str(error.value) == f"the lock {path} has been held for 0.1 s by another process"


def test_a_forked_child_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    """A data loader that is forked during a build lives for hours."""
    path = str(tmp_path / "a.lock")
    reader, writer = os.pipe()
    with lock.locked(path):
        child = os.fork()
        if child == 0:
            os.read(reader, 1)  # until the parent has looked
            os._exit(0)
        (descriptor,) = lock._held
        try:
            # As the end of the parent would: the child's copy would hold the lock on.
            with open(os.devnull) as null:
                os.dup2(null.fileno(), descriptor)
            with lock.locked(path, patience=1):
                pass
        finally:
            os.write(writer, b"x")
            status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("setting", ["off", ""])
def test_the_store_can_be_turned_off(
    kernels: ModuleType,
    forget: Forget,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    setting: str,
) -> None:
    monkeypatch.setenv("TILEOPS_CACHE_DIR", setting)
    monkeypatch.chdir(tmp_path)
    kernels.get("kept")
    forget()
    found: Any = kernels.get("kept")
    assert type(found) is kernels.Program
    assert os.listdir(tmp_path) == []


def test_no_log_record_where_all_goes_well(
    kernels: ModuleType, forget: Forget, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tileops.core.store")
    kernels.get("kept")
    forget()
    kernels.get("kept", kernels.never)
    assert said(caplog) == []


def test_a_folder_in_the_home_of_nobody_turns_the_store_off(
    kernels: ModuleType,
    forget: Forget,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TILEOPS_CACHE_DIR", "~no-such-user/kernels")
    for name in ("new", "newer"):
        assert kernels.get(name).launch() == 42
    assert said(caplog) == [
        "the store is off: TILEOPS_CACHE_DIR is '~no-such-user/kernels': Could not determine home "
        "directory."
    ]
