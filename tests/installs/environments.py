"""Environments in which distributions of several versions are installed as a user has them."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.workspace import ROOT, distributions

__all__ = ["Environment", "Wheelhouse", "find_uv", "finish"]

# What the wheels need of others is the work environment's: see `third_party`.
OUTSIDE = ("jsonschema", "tilelang", "tomli", "torch")


def find_uv() -> str | None:
    """The uv of hatch, or another one."""
    of_bootstrap = ROOT / ".hatch" / "tool" / "bin" / "uv"
    named = os.environ.get("HATCH_UV") or shutil.which("uv")
    return named or (str(of_bootstrap) if of_bootstrap.is_file() else None)


@dataclasses.dataclass(frozen=True)
class Wheelhouse:
    """Wheels of any version of our distributions, built from copies of this checkout."""

    folder: Path

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    def sources(self, family: str, version: str, siblings: str) -> Path:
        """A copy of a distribution at another version, which needs ``siblings`` of our others."""
        name = distributions()[family].folder.name
        target = self.folder / f"{family}-{version}" / name
        if not target.exists():
            folder = distributions()[family].folder
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__", "tests"))
            if family == "manifest":
                shutil.copytree(ROOT / "schema", target.parent / "schema")
            about = next(target.glob("src/tileops/*/__about__.py"))
            edit(about, r'__version__ = ".*"', f'__version__ = "{version}"')
            edit(target / "pyproject.toml", r'"(tileops-[a-z]+)~=.*"', rf'"\1{siblings}"')
        return target

    def build(self, family: str, version: str = "0.1.0", siblings: str = "~=0.1.0") -> None:
        """Put the wheel of a distribution into :attr:`wheels`."""
        from hatchling.builders.wheel import WheelBuilder

        if not list(self.wheels.glob(f"tileops_{family}-{version}-*.whl")):
            builder = WheelBuilder(str(self.sources(family, version, siblings)))
            list(builder.build(directory=str(self.wheels), versions=["standard"]))


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text("utf-8"))
    # The manifest needs no sibling.
    assert count or path.parent.name == "manifest"
    path.write_text(text, "utf-8")


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment with nothing of ours but what was installed into it."""

    folder: Path
    house: Wheelhouse
    uv: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, *arguments: str, check: bool = True) -> str:
        """What the installer says; its resolver sees the wheelhouse only."""
        overrides = self.folder / "overrides.txt"
        lines = [f"{name}; python_version < '3'\n" for name in OUTSIDE]
        overrides.write_text("".join(lines), "ascii")
        command = [self.uv, "pip", "install", "--python", str(self.python), "--no-index"]
        command += ["--find-links", str(self.house.wheels), "--overrides", str(overrides)]
        return finish([*command, *arguments], check)

    def uninstall(self, name: str) -> None:
        finish([self.uv, "pip", "uninstall", "--python", str(self.python), name], True)

    def versions(self) -> dict[str, str]:
        """The versions of our distributions, by family."""
        found = finish([self.uv, "pip", "freeze", "--python", str(self.python)], True)
        lines = re.findall(r"^tileops-([a-z]+)==(.*)$", found, re.MULTILINE)
        return dict(lines)

    def run(self, program: str) -> str:
        """What a program prints in a process of the environment."""
        return finish([str(self.python), "-c", program], True)

    def refusal(self, program: str) -> str:
        """The last line of the error that a program ends with."""
        return finish([str(self.python), "-c", program], False).splitlines()[-1]

    def command(self, *arguments: str) -> str:
        return finish([str(self.folder / "bin" / "tileops"), *arguments], True)


def finish(command: list[str], succeeds: bool) -> str:
    """Run a command that must succeed, or must fail, and return all that it says."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "UV_"))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    said = done.stdout + done.stderr
    assert (done.returncode == 0) == succeeds, f"{command} ended with {done.returncode}:\n{said}"
    return said
