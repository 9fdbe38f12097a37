"""What validating many entries, and loading one among thousands, costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tileops.manifest import add_entry_root, iter_entries, load_entry
from tileops.manifest import load as loading
from tileops.manifest.validate import validate_files, validate_roots


def copies(folder: Path, count: int) -> None:
    """Write ``count`` entries that are real ones under other names."""
    entries = [entry for entry in iter_entries() if not entry.composition]
    for at in range(count):
        entry = entries[at % len(entries)]
        snake = entry.snake.removesuffix("_fwd")
        name = entry.name.removesuffix("FwdOp")
        path = folder / entry.family / f"{snake}{at}_fwd.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = entry.path.read_text(encoding="utf-8")
        text = text.replace(f'name = "{entry.name}"', f'name = "{name}{at}FwdOp"', 1)
        path.write_text(text.replace(f'"{entry.snake}"', f'"{snake}{at}_fwd"', 1), encoding="utf-8")


def test_200_entries_validate_in_under_a_second(tmp_path: Path) -> None:
    copies(tmp_path, 200)
    files = [(path, "tileops") for path in sorted(tmp_path.rglob("*.toml"))]
    validate_roots()
    # What the process itself uses, so that a busy machine fails nothing; on one that is slower than
    # 0.09 s for two million squares, as much more as it is slower.
    spent, squares = [], []
    for _ in range(3):
        start = time.process_time()
        result = validate_files(files)
        spent.append(time.process_time() - start)
        start = time.process_time()
        sum(i * i for i in range(2_000_000))
        squares.append(time.process_time() - start)
    assert (len(result.entries), result.faults) == (200, ())
    print(f"200 entries: {min(spent):.3f} s")
    assert min(spent) < max(1.0, min(squares) / 0.09)


@pytest.fixture
def thousands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copies(tmp_path / "many", 3000)
    monkeypatch.setattr(loading, "_added", [])
    return tmp_path / "many"


def test_an_op_among_thousands_reads_its_own_file(
    thousands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def read_text(path: Path) -> str:
        read.append(path)
        return path.read_text(encoding="utf-8")

    monkeypatch.setattr(loading, "read_text", read_text)
    add_entry_root(thousands)
    path = next(iter(sorted(thousands.glob("norm/layer_norm*_fwd.toml"))))
    name = f"LayerNorm{path.stem.removeprefix('layer_norm').removesuffix('_fwd')}FwdOp"
    start = time.process_time()  # as above
    entry = load_entry(name)
    spent = time.process_time() - start
    loading._index.cache_clear()
    assert entry.name == name
    assert read == [path]
    print(f"one of 3000 entries: {spent * 1000:.1f} ms")
    assert spent < 0.25


def test_importing_costs_little_and_loads_neither_torch_nor_jsonschema() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import tileops.manifest as m; "
        "m.load_entry('RMSNormFwdOp'); print(time.perf_counter() - start); "
        "print(sorted({'torch', 'jsonschema', 'tileops.manifest.validate'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, loaded = done.stdout.splitlines()
    print(f"import and one entry: {float(seconds) * 1000:.0f} ms")
    assert loaded == "[]"
    assert float(seconds) < 0.5


def test_a_folder_that_vanishes_does_not_stop_the_others(thousands: Path) -> None:
    """A plugin that is uninstalled while a process runs takes only its own ops with it."""
    add_entry_root(thousands)
    shutil.rmtree(thousands)
    loading._index.cache_clear()
    assert load_entry("RMSNormFwdOp").name == "RMSNormFwdOp"
