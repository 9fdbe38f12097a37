"""What the tests of the store share: a folder of their own, and kernels that build at once."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tileops.core import programs, store

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library as TileLang exports them, whose entry function answers 42."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("library") / "answer.so"
    source = HERE / "answer.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.fixture(scope="session")
def _module() -> ModuleType:
    """``stored_kernels.py``, by the name under which a fresh process imports it."""
    spec = importlib.util.spec_from_file_location("stored_kernels", HERE / "stored_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kernels(
    _module: ModuleType, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """``stored_kernels.py``, with an empty store and nothing in memory."""
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEOPS_TEST_LIBRARY", str(library))
    monkeypatch.setattr(store, "_reported", set())
    _forget()
    yield _module
    _forget()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the store that ``kernels`` sets."""
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def forget() -> Callable[[], None]:
    """Empties the memory, as if another process went on."""
    return _forget


def _forget() -> None:
    with programs._lock:
        programs._programs.clear()
