"""Writes an empty distribution, and its name wherever the workspace lists all of them.

    ./tools/new_family FAMILY "Convolution ops."

Its ops come with ./tools/new_op. What is left to do is marked FILL, and a test fails while any such
mark is left. CONTRIBUTING.md has the table of the files.
"""

from __future__ import annotations

import argparse
import keyword
import re
import shutil
import sys
from pathlib import Path

from tools.new_op import RefusedError, fill, put, tidy
from tools.workspace import ROOT, distributions

__all__ = ["main", "write"]

FAMILY = re.compile(r"[a-z][a-z0-9]*")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="tools/new_family", description=summary)
    parser.add_argument("family", help="a word in small letters: conv")
    parser.add_argument("summary", help='what its ops are, in a sentence: "Convolution ops."')
    options = parser.parse_args(arguments)
    try:
        written = write(options.family, options.summary, root)
    except RefusedError as error:
        print(f"new_family: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(f"new_family: {path.relative_to(root)}")
    print(f"new_family: now its first op: ./tools/new_op {options.family} SomethingFwdOp")
    return 0


def write(family: str, summary: str, root: Path = ROOT) -> list[Path]:
    """Write the distribution of a family and return the files that were written or changed.

    Raises:
        RefusedError: the name is no family's, or is taken.
    """
    known = distributions(root)
    if not FAMILY.fullmatch(family) or keyword.iskeyword(family):
        raise RefusedError(f"{family!r} is no family; it is one word in small letters, like conv")
    if family in known:
        raise RefusedError(f"there is a family {family!r}: {known[family].folder}")
    if not re.fullmatch(r"""[^"'\\\n]*\.""", summary):
        raise RefusedError(f"{summary!r} is no sentence without quotes that ends in a full stop")
    folder = root / "packages" / f"tileops-{family}"
    package = folder / "src" / "tileops" / family
    values = {
        "family": family,
        "summary": summary,
        "python": known["core"].project["requires-python"],
        "manifest": known["manifest"].version,
        "core": known["core"].version,
    }
    places = {
        "pyproject.toml": folder,
        "README.md": folder,
        "CHANGELOG.md": folder,
        "__about__.py": package,
        "__init__.py": package,
        "test_package.py": folder / "tests",
    }
    written = [put(at / name, fill(f"family/{name}", **values)) for name, at in places.items()]
    written.append(put(package / "py.typed", ""))
    written.append(put(folder / "changes" / "+first.added.md", "First version.\n"))
    written.append(Path(shutil.copy(root / "LICENSE", folder / "LICENSE")))
    written += [_in_workspace(family, root), _in_readme(family, summary, root)]
    tidy([path for path in written if path.suffix == ".py"])
    return written


def _in_workspace(family: str, root: Path) -> Path:
    """Add the family to the environments' matrices and to mypy's roots."""
    path = root / "pyproject.toml"
    text, matrices = re.subn(
        r"^(family = \[.*)\]$", rf'\1, "{family}"]', path.read_text("utf-8"), flags=re.MULTILINE
    )
    text, roots = re.subn(
        r'^(mypy_path = \[\n(?:    ".*",\n)*)',
        rf'\1    "$MYPY_CONFIG_FILE_DIR/packages/tileops-{family}/src",\n',
        text,
        flags=re.MULTILINE,
    )
    if (matrices, roots) != (2, 1):
        raise RefusedError(f"{path} does not list the families as it did")
    return put(path, text)


def _in_readme(family: str, summary: str, root: Path) -> Path:
    """Add the family's row to the table of the folders, after those of its siblings."""
    path = root / "README.md"
    row = f"| `packages/tileops-{family}/` | `tileops-{family}` | {summary.rstrip('.')} |\n"
    text, count = re.subn(
        r"((?:^\| `packages/.*\n)+)",
        lambda found: found[1] + row,
        path.read_text("utf-8"),
        flags=re.M,
    )
    if count != 1:
        raise RefusedError(f"{path} has no table of the folders")
    return put(path, text)


if __name__ == "__main__":
    sys.exit(main())
