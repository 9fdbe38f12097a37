"""The compilers that a build needs: where they are looked for, and what is said without them."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path

from tileops.core.errors import KernelBuildError

__all__ = ["NoCompilerError", "find_nvcc", "missing_compilers", "nvcc_version"]

_HOST_COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
_CUDA_FOLDERS = ("/usr/local/cuda", "/opt/nvidia/hpc_sdk/Linux_x86_64")


class NoCompilerError(KernelBuildError):
    """This machine cannot build kernels; the message says what was looked for, and where."""


def find_nvcc() -> str | None:
    """nvcc, where TileLang looks for it; None where there is none.

    That is: ``CUDA_HOME``, else ``CUDA_PATH``, and only there if one is set; else ``PATH``, the
    package ``nvidia-cuda-nvcc``, and the usual folders.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return _executable(Path(home, "bin", "nvcc"))
    found = shutil.which("nvcc")
    if found is not None:
        return found
    usual = [Path(folder, "bin", "nvcc") for folder in _CUDA_FOLDERS]
    return next(filter(None, map(_executable, [*_packaged_nvcc(), *usual])), None)


def _packaged_nvcc() -> list[Path]:
    try:
        files = importlib.metadata.files("nvidia-cuda-nvcc") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == "nvcc"]


def missing_compilers() -> list[str]:
    """For each compiler that a build needs and that is not there, what was looked for and where."""
    missing = []
    if find_nvcc() is None:
        home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
        places = (
            f"in {home}, which CUDA_HOME or CUDA_PATH names"
            if home
            else f"on PATH, in the package nvidia-cuda-nvcc, and in {' and '.join(_CUDA_FOLDERS)}"
        )
        missing.append(f"there is no nvcc (looked {places})")
    named = os.environ.get("CXX") or os.environ.get("CC")
    if not any(map(shutil.which, [named] if named else _HOST_COMPILERS)):
        what = f"{named}, which CXX or CC names," if named else ", ".join(_HOST_COMPILERS)
        missing.append(f"there is no host compiler (looked for {what} on PATH)")
    return missing


@functools.cache
def nvcc_version() -> str | None:
    """The version of nvcc, such as ``"13.0.88"``; None where there is none or it does not say."""
    nvcc = find_nvcc()
    if nvcc is None:
        return None
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bV(\d+\.\d+\.\d+)", said.stdout)
    return found.group(1) if found else None


def _executable(path: Path) -> str | None:
    return str(path) if os.access(path, os.X_OK) else None
