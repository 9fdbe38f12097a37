"""Where compilers are looked for, and what is said of those that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileops.core import compilers
from tileops.core.compilers import find_nvcc, missing_compilers


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing on it."""
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(compilers, "_CUDA_FOLDERS", ("/no/cuda", "/no/hpc"))
    monkeypatch.setattr(compilers, "_packaged_nvcc", list)


def tool(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_nothing_anywhere() -> None:
    assert missing_compilers() == [
        "there is no nvcc (looked on PATH, in the package nvidia-cuda-nvcc, and in /no/cuda and "
        "/no/hpc)",
        "there is no host compiler (looked for g++, gcc, clang++, clang, c++, cc on PATH)",
    ]


def test_a_wrong_cuda_home_hides_the_nvcc_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for TileLang; the message names the variable, or nobody would look there."""
    tool(tmp_path, "nvcc")
    tool(tmp_path, "g++")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_compilers() == []
    monkeypatch.setenv("CUDA_HOME", "/wrong")
    assert missing_compilers() == [
        "there is no nvcc (looked in /wrong, which CUDA_HOME or CUDA_PATH names)"
    ]


def test_a_named_host_compiler_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "nvcc")
    tool(tmp_path, "gcc")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "my-g++")
    assert missing_compilers() == [
        "there is no host compiler (looked for my-g++, which CXX or CC names, on PATH)"
    ]


def test_nvcc_is_found_where_tilelang_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In that order: the usual folder, the package, PATH, and CUDA_HOME before all."""
    usual = tool(tmp_path / "usual" / "bin", "nvcc")
    monkeypatch.setattr(compilers, "_CUDA_FOLDERS", (str(tmp_path / "usual"),))
    assert find_nvcc() == usual
    packaged = tool(tmp_path / "package", "nvcc")
    monkeypatch.setattr(compilers, "_packaged_nvcc", lambda: [Path(packaged)])
    assert find_nvcc() == packaged
    on_path = tool(tmp_path / "path", "nvcc")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_nvcc() == on_path
    home = tool(tmp_path / "home" / "bin", "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_nvcc() == home


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n", "13.0.88"),
        ("#!/bin/sh\necho nothing of use\n", None),
        ("not a program", None),
    ],
)
def test_the_version_of_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, version: str | None
) -> None:
    """It is for people to read: an nvcc that says nothing stops nothing."""
    Path(tool(tmp_path / "bin", "nvcc")).write_text(script)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    compilers.nvcc_version.cache_clear()
    try:
        assert compilers.nvcc_version() == version
    finally:
        compilers.nvcc_version.cache_clear()
