"""Builds the work environment and runs a command in it; ``tools/bootstrap`` starts this.

A pinned hatch goes to ``.hatch/tool``, the environments that it makes go to ``.hatch/data``. Each
step leaves a stamp when it has ended, so a run that was interrupted takes up where it stopped, and
a step whose inputs have changed is done anew.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".hatch"
TOOL = HOME / "tool"
TOOL_PYTHON = TOOL / "bin" / "python"
REQUIREMENTS = ("hatch==1.18.2", "uv==0.13.9")
RESUME = "what was done so far is kept; the same command takes up from there"
USAGE = "usage: ./tools/bootstrap [demo | test [PYTEST ARGUMENT...] | hatch ARGUMENT...]"


def main(arguments: list[str]) -> NoReturn:
    """Prepare what is missing, then become the command."""
    command = hatch_command(arguments)
    if command is None:
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    HOME.mkdir(exist_ok=True)
    (HOME / "config.toml").touch()
    try:
        with one_at_a_time():
            install_hatch()
            environment = {**os.environ, **settings()}
            if wants_work_environment(command):
                create_work_environment(environment)
    except subprocess.CalledProcessError as error:
        say(f"stopped: {' '.join(error.cmd)} ended with {error.returncode}")
        say(RESUME)
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted")
        say(RESUME)
        sys.exit(130)
    say("running: hatch " + " ".join(command))
    os.chdir(ROOT)
    os.execve(TOOL_PYTHON, [str(TOOL_PYTHON), "-m", "hatch", *command], environment)


def hatch_command(arguments: list[str]) -> list[str] | None:
    """Translate the command line for hatch, or return None when it asks for nothing known."""
    name, *rest = arguments or ["demo"]
    if name in ("demo", "test"):
        return ["run", name, *rest]
    return rest if name == "hatch" and rest else None


def wants_work_environment(command: list[str]) -> bool:
    """Whether a hatch command runs in the work environment, with torch and the packages.

    ``run build:all`` does not: hatch makes the small environment that it names.
    """
    name, *rest = command
    words = [word for word in rest if not word.startswith(("+", "-"))] if name == "run" else []
    environment, separator, _ = (words or [""])[0].partition(":")
    return not separator or environment in ("", "default")


def install_hatch() -> None:
    """Make ``.hatch/tool``: a virtual environment with the pinned hatch and uv."""
    inputs = fingerprint(sys.version, sys.executable, *REQUIREMENTS)
    if is_done("tool", inputs) and TOOL_PYTHON.exists():
        return
    say(f"Python {sys.version.split()[0]} at {sys.executable}")
    say(f"step 1 of 2: {' and '.join(REQUIREMENTS)} into {TOOL.relative_to(ROOT)} (about 50 MB)")
    started = time.monotonic()
    # The work environment points at this Python, so it goes when the Python changes.
    clear("tool", TOOL)
    clear("work", HOME / "data")
    install = ["install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
    if importlib.util.find_spec("ensurepip"):
        check([sys.executable, "-m", "venv", str(TOOL)])
        check([str(TOOL_PYTHON), "-m", "pip", *install])
    else:
        # Some Linux distributions ship pip without the wheel of pip that venv unpacks.
        check([sys.executable, "-m", "venv", "--without-pip", str(TOOL)])
        check([sys.executable, "-m", "pip", "--python", str(TOOL_PYTHON), *install])
    done("tool", inputs, started)


def create_work_environment(environment: dict[str, str]) -> None:
    """Make hatch's default environment, with every distribution of this repository editable.

    An editable install keeps the entry points and the version of the day that it was made, so a
    change of any ``pyproject.toml`` or version makes the environment anew.
    """
    describing = sorted(
        [
            ROOT / "pyproject.toml",
            *ROOT.glob("manifest/pyproject.toml"),
            *ROOT.glob("manifest/src/tileops/*/__about__.py"),
            *ROOT.glob("packages/*/pyproject.toml"),
            *ROOT.glob("packages/*/src/tileops/*/__about__.py"),
        ]
    )
    inputs = fingerprint(*(f"{path}\n{path.read_text('utf-8')}" for path in describing))
    if is_done("work", inputs):
        return
    say("step 2 of 2: torch, TileLang and the packages into .hatch/data")
    say("the first time this downloads torch: about 200 MB built for CPU, 2 to 3 GB built for CUDA")
    started = time.monotonic()
    clear("work")
    hatch = [str(TOOL_PYTHON), "-m", "hatch"]
    check([*hatch, "env", "remove", "default"], environment)
    check([*hatch, "env", "create", "default"], environment)
    done("work", inputs, started)


def settings() -> dict[str, str]:
    """Return what hatch and uv are told through the environment.

    uv reads no configuration of pip's, so where pip was told to look for packages is passed on.
    A variable of uv's own that is already set stays as it is.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    told = {name: value for name, value in uv_settings(listed).items() if name not in os.environ}
    return {
        # An empty file: the user's own settings of hatch could move or change the environments.
        "HATCH_CONFIG": str(HOME / "config.toml"),
        "HATCH_CACHE_DIR": str(HOME / "cache"),
        "HATCH_DATA_DIR": str(HOME / "data"),
        "HATCH_PYTHON": sys.executable,
        **told,
    }


def uv_settings(pip_config: str) -> dict[str, str]:
    """Translate the output of ``pip config list`` into variables of uv's.

    A variable of the environment goes before a file, as in pip. Unlike pip, uv by default takes a
    package from the first index that has it, so further indexes need its other strategy.
    """
    values: dict[str, str] = {}
    for line in pip_config.splitlines():
        name, separator, value = line.partition("=")
        scope, _, option = name.rpartition(".")
        if separator and (scope == ":env:" or option not in values):
            values[option] = str(ast.literal_eval(value))
    told = {}
    if "find-links" in values:
        told["UV_FIND_LINKS"] = ",".join(values["find-links"].split())
    if "index-url" in values:
        told["UV_DEFAULT_INDEX"] = values["index-url"]
    if "extra-index-url" in values:
        told["UV_INDEX"] = " ".join(values["extra-index-url"].split())
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return told


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a lock, so that two runs in one checkout do not build the same environment."""
    with (HOME / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another bootstrap in this checkout")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_done(step: str, inputs: str) -> bool:
    stamp = HOME / f"{step}.stamp"
    return stamp.exists() and stamp.read_text("ascii") == inputs


def done(step: str, inputs: str, started: float) -> None:
    (HOME / f"{step}.stamp").write_text(inputs, "ascii")
    say(f"done in {time.monotonic() - started:.0f} s")


def clear(step: str, *folders: Path) -> None:
    """Take back a step: its stamp first, so that an interruption here cannot leave it standing."""
    (HOME / f"{step}.stamp").unlink(missing_ok=True)
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)


def check(command: list[str], environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def say(message: str) -> None:
    print(f"bootstrap: {message}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
