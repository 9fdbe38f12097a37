"""Peers: other libraries, each in a process of its own that is asked for one sample at a time."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import torch

from tileops.core.errors import BenchError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ADAPTERS", "PeerProcess", "find_adapters", "parse_peer", "parse_peers"]

ADAPTERS = Path("tools") / "peers"
SECONDS = 900.0
MEMORY = "/dev/shm"


def parse_peer(text: str, folder: Path = ADAPTERS) -> tuple[str, Path, str]:
    """Name, adapter and place of ``NAME``, ``FILE.py`` or either with ``=PLACE``.

    Raises:
        BenchError: there is no such adapter.
    """
    name, _, place = text.partition("=")
    path = Path(name) if name.endswith(".py") else folder / f"{name}.py"
    if not path.is_file():
        there = ", ".join(sorted(one.stem for one in folder.glob("*.py"))) or "none"
        raise BenchError(
            f"there is no peer {name!r}: {path} is no file; the adapters in {folder} are: {there}"
        )
    return path.stem, path, place


def parse_peers(
    texts: Sequence[str], taken: Collection[str], folder: Path = ADAPTERS
) -> list[tuple[str, Path, str]]:
    """Each of ``texts`` parsed. Reports know a peer by its name, so each needs one of its own.

    Raises:
        BenchError: there is no such adapter, or its name is in ``taken`` or an earlier peer's.
    """
    found: list[tuple[str, Path, str]] = []
    for text in texts:
        name, path, place = parse_peer(text, folder)
        if name in taken or any(name == other for other, *_ in found):
            raise BenchError(
                f"--peer {text}: reports have a {name!r} already, and samples of two would be "
                f"mixed; copy the adapter to a file of another name"
            )
        found.append((name, path, place))
    return found


def find_adapters(folder: Path = ADAPTERS) -> list[str]:
    """The names of the adapters in ``folder``."""
    return sorted(path.stem for path in folder.glob("*.py"))


class PeerProcess:
    """A peer at work; leaving the context ends its process.

    Args:
        name: what reports call it.
        adapter: the adapter's file.
        place: where the peer is installed: an interpreter, or folders, joined as in
            ``PYTHONPATH``, that this one shall search in place of its own.
        seconds: how long one answer may take before the process is given up.
    """

    def __init__(self, name: str, adapter: Path, place: str = "", seconds: float = SECONDS) -> None:
        self.name = name
        self.version = ""
        self.missing = ""
        self._adapter = adapter
        self._place = place
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        # In memory where there is such a folder: arguments and results may take gigabytes.
        memory = MEMORY if os.access(MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="tileops-bench-", dir=memory)

    def __enter__(self) -> Self:
        environment, python = dict(os.environ), self._place or sys.executable
        if self._place:
            environment.pop("PYTHONPATH", None)
        if Path(self._place.split(os.pathsep)[0] or sys.executable).is_dir():
            environment["PYTHONPATH"], python = self._place, sys.executable
        script = Path(__file__).with_name("peer_process.py")
        try:
            self._process = subprocess.Popen(
                [python, str(script), str(self._adapter)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            answer = self.ask("hello")
        except (OSError, BenchError) as error:
            self.missing = str(error)
            return self
        self.version, self.missing = answer.get("version", ""), answer.get("missing", "")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        self._folder.cleanup()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends one request and returns the answer.

        Raises:
            BenchError: the peer failed, ended, or took too long.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise BenchError(f"the peer {self.name} is not running")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            process.stdin.flush()
        line = _line(process.stdout, self.seconds)
        if line is None:
            process.kill()
            self._end()
            raise BenchError(f"the peer {self.name} gave no answer in {self.seconds:g} s to {do}")
        if not line:
            code = process.wait()
            self._end()
            raise BenchError(f"the peer {self.name} ended with code {code} when asked to {do}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(f"the peer {self.name} failed to {do}: {answer['error']}")
        return answer

    def prepare(
        self, op: str, params: dict[str, Any], arguments: dict[str, Any], device: torch.device
    ) -> tuple[Sequence[Any], dict[str, Any]] | str:
        """Has the peer make the call once: its outputs and its arguments after it, or why not.

        Raises:
            BenchError: the peer failed, ended, or took too long.
        """
        files = [str(Path(self._folder.name) / name) for name in ("arguments.pt", "results.pt")]
        on_cpu = {
            name: value.cpu() if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        torch.save(on_cpu, files[0])
        answer = self.ask(
            "prepare",
            op=op,
            params=params,
            arguments=files[0],
            results=files[1],
            device=str(device),
        )
        if not answer["served"]:
            return str(answer["reason"])
        try:
            found = torch.load(files[1])
        except pickle.UnpicklingError as error:
            raise BenchError(
                f"the peer {self.name} gave what is no tensor: {str(error).splitlines()[0]}"
            ) from error
        return found["results"], found["arguments"]

    def sampler(self, measure: str, sets: int) -> Callable[[], float]:
        """Has the peer warm up; what it returns asks for one sample.

        Raises:
            BenchError: the peer failed, ended, or took too long.
        """
        self.ask("sampler", measure=measure, sets=sets)
        return lambda: float(self.ask("sample", measure=measure)["seconds"])

    def drop(self) -> None:
        """Frees what was prepared, where the process is still there to do it."""
        with contextlib.suppress(BenchError):
            self.ask("drop")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _line(pipe: IO[bytes], seconds: float) -> bytes | None:
    """The next line, b"" at the end, None where there is none in time.

    A request has one answer of one line, so nothing is buffered beyond it.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return pipe.readline() if selector.select(seconds) else None
