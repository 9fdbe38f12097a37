"""``tileops doctor``: what is installed, whether it fits together, and what is in the way."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distributions,
    entry_points,
    version,
)
from pathlib import Path

from tileops.core.compilers import find_nvcc, missing_compilers, nvcc_version
from tileops.core.store import default_folder
from tileops.manifest.load import root_faults
from tileops.manifest.versions import fits, siblings

__all__ = ["Finding", "diagnose", "report"]

OK, NOTE, WRONG = "ok", "note", "WRONG"

Finding = tuple[str, str, str]
"""How it is (``ok``, ``note``, ``WRONG``), what it is about, and what was found."""


def report() -> int:
    """Prints every finding; returns 1 where something is wrong."""
    wrong = False
    for state, subject, text in diagnose():
        wrong = wrong or state == WRONG
        print(f"{state:5}  {subject:22}  {text}")
    return int(wrong)


def diagnose() -> Iterator[Finding]:
    """Every finding, from the outside in."""
    yield OK, "python", f"{platform.python_version()} at {sys.executable}"
    yield from _distributions()
    yield from _namespace()
    yield from _families()
    yield from _offers()
    yield from _torch()
    yield from _compilers()
    yield from _folders()
    yield from _targets()


def _own() -> dict[str, Distribution]:
    """The project's distributions, and those of others that offer it ops or targets."""
    found: dict[str, Distribution] = {}
    for one in distributions():
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
        offers = any(point.group.startswith("tileops.") for point in one.entry_points)
        if name == "tileops" or name.startswith("tileops-") or offers:
            found.setdefault(name, one)
    return dict(sorted(found.items()))


def _distributions() -> Iterator[Finding]:
    own = _own()
    for name, one in own.items():
        if name == "tileops":
            yield (
                WRONG,
                name,
                f"{one.version}: another project's package, which owns the same import name; "
                f"uninstall it, or keep the two in environments of their own",
            )
            continue
        yield OK, name, one.version
        for needed, specifier in siblings(one.requires or ()):
            sibling, wanted = own.get(needed), f"{needed}{specifier}"
            if sibling is None:
                yield WRONG, name, f"needs {wanted}, which is not installed: pip install '{wanted}'"
            elif not fits(specifier, sibling.version):
                yield (
                    WRONG,
                    name,
                    f"needs {wanted}, and {needed} {sibling.version} is installed: "
                    f"pip install '{wanted}'",
                )


def _namespace() -> Iterator[Finding]:
    """A regular package named ``tileops`` would hide the namespace that ours share."""
    for entry in sys.path:
        marker = Path(entry or ".") / "tileops" / "__init__.py"
        if marker.is_file():
            yield (
                WRONG,
                "import tileops",
                f"{marker} makes tileops a package of its own and hides the families; take it "
                f"off sys.path",
            )


def _families() -> Iterator[Finding]:
    from tileops.core.errors import FamilyError
    from tileops.core.families import load_families

    try:
        names = load_families()
    except FamilyError as error:
        yield WRONG, "families", str(error)
        return
    yield (OK if names else NOTE), "families", ", ".join(names) or "none is installed"


def _offers() -> Iterator[Finding]:
    """What packages offer wrongly: entries that are nowhere, contracts that do not load."""
    for fault in root_faults():
        yield WRONG, "entries", str(fault)
    for point in entry_points(group="tileops.contracts"):
        try:
            point.load()
        except Exception as error:
            yield (
                WRONG,
                "contracts",
                f"{point.name} ({point.value}) failed to load: {type(error).__name__}: {error}",
            )


def _torch() -> Iterator[Finding]:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPU"
    yield OK, "torch", f"{torch.__version__}, {build}"
    if not torch.cuda.is_available():
        yield NOTE, "devices", "no CUDA device: the target 'reference' serves"
        return
    from tileops.core.tilelang_backend import device_arch

    for index in range(torch.cuda.device_count()):
        yield OK, f"cuda:{index}", f"{torch.cuda.get_device_name(index)}, {device_arch(index)}"


def _compilers() -> Iterator[Finding]:
    for name in ("tilelang", "apache-tvm-ffi"):
        try:
            yield OK, name, version(name)
        except PackageNotFoundError:
            yield NOTE, name, "not installed: kernels can be neither built nor loaded"
    nvcc = find_nvcc()
    if nvcc is not None:
        yield OK, "nvcc", f"{nvcc_version() or 'of unknown version'} at {nvcc}"
    for missing in missing_compilers():
        yield NOTE, "compilers", f"{missing}: this machine builds no kernel and needs stored ones"


def _folders() -> Iterator[Finding]:
    folders = {"TileLang's cache": Path(os.environ.get("TILELANG_CACHE_DIR", "~/.tilelang/cache"))}
    store = default_folder()
    if store is None:
        yield NOTE, "kernel store", "off: every process builds its kernels"
    else:
        folders = {"kernel store": store, **folders}
    for name, path in folders.items():
        path = path.expanduser()
        nearest = next(one for one in (path, *path.parents) if one.exists())
        # Below a file nothing can be made, whoever may write the file.
        if nearest.is_dir() and os.access(nearest, os.W_OK):
            yield OK, name, f"{path}{'' if path.exists() else ' (not made yet)'}"
        else:
            yield NOTE, name, f"{path} cannot be written: kernels are built again in each process"


def _targets() -> Iterator[Finding]:
    from tileops.core.plugins import plugin_failures
    from tileops.core.targets import default_target, target_names

    names = target_names()
    default = default_target()
    yield OK, "targets", ", ".join(names)
    if default is not None:
        state = OK if default in names else WRONG
        yield state, "default target", f"{default!r}{'' if state == OK else ', which there is not'}"
    for failure in plugin_failures():
        yield WRONG, "target plugin", str(failure)
