"""A stored program is found by all that its build read, and by nothing else."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tileops.core import store
from tileops.core.errors import DefinitionError
from tileops.core.store import entry
from tileops.core.store.key import spell_identity


class Order(enum.Enum):
    ROWS = 1
    COLUMNS = 2


@dataclasses.dataclass(frozen=True)
class Config:
    threads: int
    order: Order = Order.ROWS


def test_an_identity_is_spelt_the_same_in_every_process(kernels: ModuleType) -> None:
    identity = ("norm", 4096, 1e-5, None, True, torch.bfloat16, Config(128), ("a",), ())
    assert spell_identity(kernels.AnswerKernel, identity) == (
        "('norm', 4096, 1e-05, None, True, torch.bfloat16, "
        "Config(threads=128, order=Order.ROWS), ('a', ), (), )"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (1, "1"),
        ((1, 2), ((1, 2),)),
        (("a", "b"), ("a, b",)),
        (Config(1), Config(1, Order.COLUMNS)),
        (torch.float16, "torch.float16"),
        (0.1, 0.1 + 2**-56),
    ],
)
def test_different_identities_are_spelt_differently(
    kernels: ModuleType, one: Any, other: Any
) -> None:
    """Two builds under one key would give a call the other's kernel."""
    assert spell_identity(kernels.AnswerKernel, one) != spell_identity(kernels.AnswerKernel, other)


def test_an_identity_without_a_text_is_refused(kernels: ModuleType) -> None:
    """The text of a plain object is its address: another process would never find the kernel, or
    find another's there."""

    class Plain:
        def __repr__(self) -> str:
            return "<plain>"

    with pytest.raises(DefinitionError) as error:
        kernels.get(("norm", Plain()))
    assert str(error.value) == (
        "stored_kernels.AnswerKernel: the identity that entry_for returns holds <plain>, which has "
        "no text that is the same in every process; let it hold numbers, strings, dtypes, "
        "enumerations, and tuples and frozen dataclasses of them"
    )


def test_a_key_says_what_it_is_made_of(kernels: ModuleType) -> None:
    lines = dict(line.split(": ", 1) for line in kernels.key((1,)).splitlines())
    assert lines.pop("sources").isalnum()
    assert lines == {
        "format": "1",
        "kernel": "stored_kernels.AnswerKernel",
        "identity": "(1, )",
        "tilelang": importlib.metadata.version("tilelang"),
        "apache-tvm-ffi": importlib.metadata.version("apache-tvm-ffi"),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def test_another_version_of_tilelang_builds_its_own(
    kernels: ModuleType, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stay: the two versions may share a folder."""
    kernels.get("kept")
    forget()
    monkeypatch.setattr("tileops.core.store.key._versions", lambda: {"tilelang": "9.9.9"})
    assert type(kernels.get("kept")) is kernels.Program
    opened = store.open_store()
    assert opened is not None
    assert len(opened.entries()) == 2


def test_nvcc_is_recorded_and_no_part_of_the_key(
    kernels: ModuleType, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has no nvcc finds what one with nvcc built."""
    monkeypatch.setattr(store, "nvcc_version", lambda: "13.0.88")
    kernels.get("kept")
    facts = entry.unpack(kernels.path("kept").read_bytes(), kernels.key("kept"))
    assert facts.nvcc == "13.0.88"
    monkeypatch.setattr(store, "nvcc_version", lambda: None)
    forget()
    assert kernels.get("kept", kernels.never).launch() == 42


PACKAGE = {
    "__init__.py": "",
    "shared.py": "THREADS = 128\n",
    "op/__init__.py": "",
    "op/kernels.py": (
        "from tileops.core import Kernel\n"
        "from toy_family import shared\n"
        "class ToyKernel(Kernel):\n"
        "    pass\n"
    ),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an importable family with one kernel, whose files are a minute old."""
    folder = tmp_path / "family" / "toy_family"
    for name, text in PACKAGE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, text)
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def write(path: Path, text: str, age: float = 60) -> None:
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)


def imported() -> Any:
    for name in [name for name in sys.modules if name.split(".")[0] == "toy_family"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module("toy_family.op.kernels").ToyKernel


def test_an_edit_anywhere_in_the_family_builds_again(kernels: ModuleType, package: Path) -> None:
    """One op's kernels may use another's pieces: an old kernel must not serve new sources. The old
    one is found again where the sources are what they were."""
    kernels.get("toy", kernel=imported())
    kernels.get("toy", kernels.never, kernel=imported())
    write(package / "shared.py", "THREADS = 256\n", age=30)
    assert type(kernels.get("toy", kernel=imported())) is kernels.Program
    write(package / "shared.py", "THREADS = 128\n", age=20)
    kernels.get("toy", kernels.never, kernel=imported())


def test_a_process_that_runs_older_sources_than_the_files_keeps_to_itself(
    kernels: ModuleType, package: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would store the old kernel under the new sources, for every later process to run."""
    toy = imported()
    write(package / "shared.py", "THREADS = 256\n", age=-60)
    assert type(kernels.get("toy", kernel=toy)) is kernels.Program
    assert not folder.exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"ToyKernel is kept out of the store: {package / 'shared.py'} was changed after the kernel "
        f"was imported"
    ]


def test_a_kernel_that_was_typed_in_is_kept_out_of_the_store(
    kernels: ModuleType, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A notebook's kernel has no file that its next version would differ in."""
    namespace: dict[str, Any] = {"__name__": "typed_in"}
    exec("from tileops.core import Kernel\nclass Typed(Kernel): pass", namespace)
    assert type(kernels.get("typed", kernel=namespace["Typed"])) is kernels.Program
    assert not folder.exists()
    assert [record.getMessage() for record in caplog.records] == [
        "Typed is kept out of the store: it is defined in no file"
    ]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TILEOPS_CACHE_DIR": "/data/cache"}, "/data/cache/kernels"),
        ({"TILEOPS_CACHE_DIR": "~/cache"}, "/home/me/cache/kernels"),
        ({"XDG_CACHE_HOME": "/scratch"}, "/scratch/tileops/kernels"),
        ({"XDG_CACHE_HOME": "scratch"}, "/home/me/.cache/tileops/kernels"),
        ({}, "/home/me/.cache/tileops/kernels"),
        ({"TILEOPS_CACHE_DIR": "off", "XDG_CACHE_HOME": "/scratch"}, None),
        ({"TILEOPS_CACHE_DIR": "", "XDG_CACHE_HOME": "/scratch"}, None),
    ],
)
def test_where_the_store_is(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str | None
) -> None:
    for name in ("TILEOPS_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)
    assert store.default_folder() == (None if expected is None else Path(expected))
