"""A kernel whose programs are stored as TileLang's are, and take no time to build.

A fresh process imports this module from this folder; tests get it from ``conftest.py``.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.core.compilers import NoCompilerError
from tileops.core.errors import TargetError
from tileops.core.kernels import program_for
from tileops.core.store import open_store
from tileops.core.store.key import key_text, spell_identity
from tileops.core.tilelang_backend import device_arch
from tileops.manifest import Entry, load_text


@dataclasses.dataclass
class Program:
    """What was built: it answers 42, and exports the library that does."""

    symbol: str = "answer"
    source: str = "int answer;"

    def launch(self) -> int:
        return 42

    def export(self, path: str) -> None:
        shutil.copyfile(os.environ["TILEOPS_TEST_LIBRARY"], path)


class AnswerKernel(Kernel):
    """One program for each identity."""

    @classmethod
    def entry_for(cls, call: Any) -> tuple[Hashable, Callable[[], Any]]:
        arch = device_arch(call.device)
        if arch == "sm_75":
            raise TargetError("AnswerKernel: sm_75 has no answer; use target='reference'")

        def build() -> Program:
            builds.append(arch)
            if arch == "sm_89":
                raise RuntimeError("nvcc said no")
            return Program()

        return (call.width, arch), build


builds: list[str] = []
"""The architectures that ``entry_for``'s function built for."""


def get(
    identity: Any,
    build: Callable[[], Any] = Program,
    *,
    kernel: type[Kernel] | None = AnswerKernel,
    device: str = "cpu",
) -> Any:
    return program_for(
        identity, build, device=torch.device(device), op="AnswerOp", shape="[3]", kernel=kernel
    )


def key(identity: Any) -> str:
    return key_text(AnswerKernel, spell_identity(AnswerKernel, identity))


def path(identity: Any) -> Path:
    """Where the entry of ``identity`` is."""
    store = open_store()
    assert store is not None
    return store.path(key(identity))


def never() -> Any:
    raise AssertionError("this was built before")


def no_compiler() -> Any:
    raise NoCompilerError("there is no nvcc (looked on PATH)")


def slow_and_counted(log: Path) -> Callable[[], Program]:
    """A build that takes a while and leaves a line in ``log``."""

    def build() -> Program:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.2)
        return Program()

    return build


def processes(count: int, log: Path) -> None:
    """Forks ``count`` processes that ask for one program at the same time, and prints each answer.

    They are forked by a process that has asked for nothing, so all of them are cold.
    """
    start = time.monotonic() + 0.2
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            time.sleep(start - time.monotonic())
            answer = get("shared", slow_and_counted(log)).launch()
            os._exit(int(answer))
        children.append(child)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])


@dataclasses.dataclass(frozen=True)
class Call:
    device: torch.device
    width: int


class Answer(KernelInterface):
    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)

    @classmethod
    def select(cls, call: Any, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        return kernel_types["answer"]


def _entry(name: str, *, family: str = "answers", written: bool = False) -> Entry:
    return load_text(
        f"""
name = "{name}"
family = "{family}"
status = "planned"
since = "0.1.0"
summary = "For tests."
formula = "y = 42"
reference = "torch"
[signature.dims]
M = "rows"
N = "columns"
[signature.dtypes]
T = ["float32"]
[[signature.inputs]]
name = "x"
dtype = "T"
shape = ["M", "N"]
{"mutated = true" if written else ""}
[[signature.outputs]]
name = "y"
dtype = "T"
shape = ["M", "N"]
{'alias = "x"' if written else ""}
[[workloads]]
label = "small"
model = "none"
phase = "prefill"
dims = {{ M = 2, N = 16 }}
dtypes = {{ T = "float32" }}
[[workloads]]
label = "tall"
model = "none"
phase = "prefill"
dims = {{ M = 2000, N = 16 }}
dtypes = {{ T = "float32" }}
[[workloads]]
label = "wide"
model = "none"
phase = "decode"
dims = {{ M = 2, N = 32 }}
dtypes = {{ T = "float32" }}
""",
        path=Path("for_tests.toml"),
    )


class AnswerFwdOp(Op, entry=_entry("AnswerFwdOp")):
    """One kernel for each width."""

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {"answer": AnswerKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"main": Answer}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        return self.kernel_for("main", Call(x.device, x.shape[1]))(x)


class AnswerInPlaceFwdOp(Op, entry=_entry("AnswerInPlaceFwdOp", written=True)):
    """Writes its input through another op, with half of the columns."""

    def __init__(self, *, target: str | None = None) -> None:
        self._inner = AnswerFwdOp()
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        left, right = x.chunk(2, dim=1)
        return x.copy_(torch.cat([self._inner(left), self._inner(right)], dim=1))


class AnswerByValueFwdOp(Op, entry=_entry("AnswerByValueFwdOp", family="values")):
    """Chooses by what its tensor holds, which a plan cannot know."""

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: torch.Tensor) -> Any:
        return self.kernel_for("main", Call(x.device, int(x.sum())))(x)
