"""Writes what a new op needs: entry, folder, contract case, tests, changelog fragments.

    ./tools/new_op FAMILY CLASS          such as: norm SoftcapFwdOp

An entry that is there already is kept, and the stubs follow its signature; so write the entry first
where the op is more than one tensor in and one out. Everything that is left to do is marked FILL,
and tests fail, by name, until no such mark is left. CONTRIBUTING.md has the table of the files.
"""

from __future__ import annotations

import argparse
import keyword
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from tileops.manifest import Entry, ManifestError
from tileops.manifest.load import load_file
from tileops.manifest.names import snake_case
from tools import stubs
from tools.workspace import ROOT, Distribution, distributions

__all__ = ["RefusedError", "add_to_list", "fill", "main", "put", "tidy", "unfilled", "write"]

TEMPLATES = Path(__file__).parent / "templates"
CLASS = re.compile(r"[A-Z][A-Za-z0-9]*Op")


class RefusedError(Exception):
    """What was asked for cannot be written."""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/new_op", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("family", help="the family that the op is of")
    parser.add_argument("name", metavar="CLASS", help="the op's class, such as SoftcapFwdOp")
    options = parser.parse_args(arguments)
    try:
        written = write(options.family, options.name, root)
    except (RefusedError, ManifestError) as error:
        print(f"new_op: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(f"new_op: {path.relative_to(root)}")
    print("new_op: now fill what is marked FILL; CONTRIBUTING.md says what belongs where")
    return 0


def write(family: str, name: str, root: Path = ROOT) -> list[Path]:
    """Write the stubs of an op and return the files that were written or changed.

    Raises:
        RefusedError: there is no such family, the name is no op's, or the op is there already.
        ManifestError: the entry that is there is wrong.
    """
    known = distributions(root)
    if family not in known or family in ("core", "manifest"):
        families = ", ".join(one for one in known if one not in ("core", "manifest"))
        raise RefusedError(
            f"there is no family {family!r}; the families are {families}, and ./tools/new_family "
            "makes another"
        )
    if not CLASS.fullmatch(name):
        raise RefusedError(f"{name!r} is no op's class; it is called like RMSNormFwdOp")
    entries = root / "manifest" / "src" / "tileops" / "manifest" / "entries"
    found = [path for path in entries.glob("*/*.toml") if _is_of(path, name)]
    if found and found[0].parent.name != family:
        raise RefusedError(f"{name} has an entry in the family {found[0].parent.name}")
    snake = found[0].stem if found else snake_case(name)
    word = snake.removesuffix("_fwd")
    one = known[family]
    if keyword.iskeyword(word):
        raise RefusedError(
            f"{name!r} is no op's class: its module would be called {word}, a word of Python's"
        )
    if found and load_file(found[0]).status == "implemented":
        raise RefusedError(f"{name} is there already: its entry says that it is implemented")
    taken = [
        one.package / word,
        one.package / f"{word}.py",
        one.package / "contracts" / f"{word}.py",
        one.folder / "tests" / f"test_{word}.py",
    ]
    for path in taken:
        if path.exists():
            raise RefusedError(f"{path.relative_to(root)} is there already")
    if (one.package / "contracts.py").exists():
        module = (one.package / "contracts.py").relative_to(root)
        raise RefusedError(
            f"{module} is one module; make it the package contracts/ first, of one module an op or "
            "a group of ops"
        )
    written = []
    if not found:
        since = known["manifest"].version
        entry_file = entries / family / f"{snake}.toml"
        text = fill("op/entry.toml", name=name, family=family, since=since)
        written.append(put(entry_file, text))
    entry = load_file(found[0] if found else entry_file)
    note = f"The entry of `{name}`.\n"
    written.append(put(known["manifest"].fragments / f"+{word}.added.md", note))
    written += _stubs(entry, one, word, root)
    tidy([path for path in written if path.suffix == ".py"])
    return written


def _is_of(path: Path, name: str) -> bool:
    return re.search(rf'^name = "{name}"$', path.read_text("utf-8"), re.MULTILINE) is not None


def _stubs(entry: Entry, one: Distribution, word: str, root: Path) -> list[Path]:
    family_module = f"tileops.{one.package.name}"
    folder = one.package / word
    stem = entry.name.removesuffix("Op")
    contract = one.package / "contracts" / f"{word}.py"
    values = {
        **stubs.words(entry),
        "name": entry.name,
        "stem": stem,
        "title": stem.removesuffix("Fwd"),
        "word": word,
        "module": f"{family_module}.{word}",
        "family_module": family_module,
    }
    values.update(_of_kind(entry, values))
    names = ["__init__.py", "op.py"]
    if entry.has_boundary:
        names += ["reference.py", "kernels.py"]
    written = [put(folder / name, fill(f"op/{name}", **values)) for name in names]
    written += _contracts(one)
    written.append(put(contract, fill("op/contract.py", **values)))
    written.append(
        add_to_list(contract.with_name("__init__.py"), f"{family_module}.contracts", word)
    )
    tests = one.folder / "tests" / f"test_{word}.py"
    written.append(put(tests, fill("op/test.py", **values)))
    written.append(add_to_list(one.package / "__init__.py", values["module"], entry.name))
    written.append(
        put(one.fragments / f"+{word}.added.md", f"`{entry.name}`: FILL: what it does.\n")
    )
    return list(dict.fromkeys(written))


def _of_kind(entry: Entry, values: dict[str, str]) -> dict[str, str]:
    """What differs between an op with kernels, a composite, and an op that takes no tensor."""
    if not entry.has_boundary:
        what = "the sub-ops" if entry.composition else "the table"
        return {
            "imports": "from tileops.core import Op",
            "class_variables": "",
            "body": f'raise NotImplementedError("FILL: {what} of {entry.name}")',
        }
    word, stem, first = values["word"], values["stem"], values["first"]
    return {
        "imports": "from tileops.core import Kernel, KernelInterface, Op\n"
        f"from {values['module']}.kernels import {stem}Call, {stem}Interface",
        "class_variables": f"""
    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {{}}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {{"{word}": {stem}Interface}}
""",
        "body": f"""{values["contiguous"]}
        # FILL: the rest of the call spec
        call = {stem}Call(device={first}.device, dtype={first}.dtype)
        results: {values["results"]} = self.kernel_for("{word}", call)({values["input_list"]})
        return results""",
    }


def _contracts(one: Distribution) -> list[Path]:
    """Make the package of the family's compile cases, and its entry point, where there is none."""
    package = one.package / "contracts" / "__init__.py"
    if package.exists():
        return []
    text = fill("op/contracts.py", family=one.family)
    written = [put(package, text)]
    settings = one.folder / "pyproject.toml"
    if "tileops.contracts" not in one.project.get("entry-points", {}):
        point = f'{one.family} = "tileops.{one.package.name}.contracts"'
        group = f'[project.entry-points."tileops.contracts"]\n{point}\n\n'
        before = '[project.entry-points."tileops.families"]'
        old = settings.read_text("utf-8")
        if before not in old:
            raise RefusedError(f"{settings} has no {before}; the family could not be found")
        written.append(put(settings, old.replace(before, group + before, 1)))
    return written


def add_to_list(path: Path, module: str, name: str) -> Path:
    """Import ``name`` from ``module`` in a file, and add it to the file's ``__all__``.

    The new import is the last one: a family's first ones are of what must be checked first.
    """
    text = path.read_text("utf-8")
    start = text.index("__all__")
    listed = text[start:]
    end = start + (listed.index("]") + 1)
    names = sorted({*re.findall(r'"(\w+)"', text[start:end]), name}, key=_as_ruff_sorts)
    quoted = ", ".join(f'"{one}"' for one in names)
    late = "  # noqa: E402" if "require_siblings(" in text[:start] else ""
    statement = f"from {module} import {name}{late}\n"
    before = text[:start].rstrip("\n")
    both = f"{before}\n{statement}" if _ends_with_import(before) else f"{before}\n\n{statement}"
    return put(path, f"{both}\n__all__ = [{quoted}]{text[end:]}")


def _ends_with_import(text: str) -> bool:
    return re.match(r"(?:from|import|\))", text.splitlines()[-1]) is not None


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


def fill(template: str, **values: str) -> str:
    """A template of ``tools/templates`` with its placeholders replaced."""
    text = (TEMPLATES / f"{template}.template").read_text("utf-8")
    return Template(text).substitute(values)


def unfilled(root: Path = ROOT) -> list[str]:
    """Every place that is still marked FILL, as ``FILE:LINE: TEXT``."""
    files = [
        path
        for pattern in ("manifest/**/*", "packages/**/*")
        for path in sorted(root.glob(pattern))
        if path.suffix in (".md", ".py", ".toml") and path.is_file()
    ]
    return [
        f"{path.relative_to(root).as_posix()}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\bFILL\b", line)
    ]


def put(path: Path, text: str) -> Path:
    """Write a file, its folder made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def tidy(paths: list[Path]) -> None:
    """Sort the imports, drop those that this op does not need, and format."""
    ruff = [sys.executable, "-m", "ruff"]
    names = [str(path) for path in paths]
    for command in (["check", "--quiet", "--fix", "--select", "F401,I"], ["format", "--quiet"]):
        subprocess.run([*ruff, *command, *names], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
