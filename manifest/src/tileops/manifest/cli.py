"""``tileops-manifest``: validate, list, show, diff and export entries. It needs no torch.

Exit codes: 0 where all is well, 1 where something is wrong with entries or a version has not moved
far enough, 2 where the command cannot be carried out as it was given.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tileops.manifest.__about__ import __version__
from tileops.manifest.faults import ManifestError
from tileops.manifest.load import (
    NAMESPACE,
    entry_roots,
    iter_entries,
    iter_files,
    load_entry,
    root_faults,
)
from tileops.manifest.model import Entry

__all__ = ["main"]

OK: Final = 0
WRONG: Final = 1
USAGE: Final = 2


class _UsageError(Exception):
    """The command cannot be carried out as it was given."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that is not UTF-8 shows escapes for what it lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
        return code
    except ManifestError as error:
        print(error, file=sys.stderr)
        return WRONG
    except _UsageError as error:
        print(f"tileops-manifest: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # The reader (head, a pager) has seen enough; what is still buffered has no reader.
        _drop_output()
        return OK
    except OSError as error:
        _drop_output()
        print(f"tileops-manifest: the output cannot be written: {error}", file=sys.stderr)
        return USAGE


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python would try to write it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tileops-manifest", description=_first_line(__doc__))
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Callable[[argparse.Namespace], int], name: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=_first_line(run.__doc__), description=_first_line(run.__doc__)
        )
        made.set_defaults(run=run)
        made.add_argument("--json", action="store_true", help="print JSON")
        return made

    validate = command(_validate, "validate")
    validate.add_argument("paths", nargs="*", metavar="PATH", help="files, or folders of entries")
    validate.add_argument(
        "--level",
        type=int,
        choices=(2, 3),
        help="2: schema and meaning; 3: also what the installed families are "
        "(default: 3 for the installed entries, 2 for a PATH)",
    )
    validate.add_argument(
        "--namespace", default=NAMESPACE, help="namespace of the operators of a PATH's entries"
    )
    listing = command(_list, "list")
    listing.add_argument("--family")
    listing.add_argument("--status", choices=("planned", "implemented"))
    show = command(_show, "show")
    show.add_argument("op", metavar="OP", help="the op's class")
    show.add_argument("--family")
    diff = command(_diff, "diff")
    places = "a folder, a wheel, a git revision, `released` or `installed`"
    diff.add_argument("old", metavar="OLD", help=places)
    diff.add_argument("new", metavar="NEW", nargs="?", default="installed", help="likewise")
    diff.add_argument(
        "--check", action="store_true", help="exit with 1 unless the version moved far enough"
    )
    export = command(_export, "export")
    export.add_argument("--output", type=Path, metavar="FILE", help="write there, not to stdout")
    return parser


def _validate(arguments: argparse.Namespace) -> int:
    """Check entries and report everything that is wrong with them."""
    from tileops.manifest.validate import conformance_faults, validate_files

    if not arguments.namespace.isidentifier():
        raise _UsageError(
            f"a namespace is a name of letters, digits and underscores, not {arguments.namespace!r}"
        )
    installed = [(path, root.namespace) for root in entry_roots() for path in iter_files(root)]
    if arguments.paths:
        files = [(path, arguments.namespace) for path in _find(map(Path, arguments.paths))]
        known = [entry for entry in _sound(installed) if entry is not None]
    else:
        files, known = installed, []
    broken = [] if arguments.paths else root_faults()
    result = validate_files(files, known)
    faults = broken + list(result.faults)
    level = arguments.level or (2 if arguments.paths else 3)
    conformed = conformance_faults(result.entries) if level == 3 and not faults else None
    faults += conformed or []
    if arguments.json:
        _print_json({"entries": len(files), "faults": [fault.as_dict() for fault in faults]})
        return WRONG if faults else OK
    for fault in faults:
        print(fault)
    told = "conform to what is installed" if conformed is not None else "are valid"
    if faults:
        print(f"{len(faults)} faults in {len(files)} entries", file=sys.stderr)
        return WRONG
    if arguments.level == 3 and conformed is None:
        told += "; tileops-core is not installed, so no op was compared with its entry"
    print(f"{len(files)} entries {told}", file=sys.stderr)
    return OK


def _find(paths: Any) -> list[Path]:
    """Return the entry files below some paths, each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            files = _below(path)
            if not files:
                raise _UsageError(f"{path} holds no entries (*.toml)")
        elif path.exists():
            files = [path]
        else:
            raise _UsageError(f"{path} does not exist")
        for file in files:
            found.setdefault(file.absolute(), file)
    return list(found.values())


def _below(path: Path) -> list[Path]:
    """Return the entry files below a folder, through links too, as the loader reads them."""

    def unreadable(error: OSError) -> None:
        raise _UsageError(f"{error.filename} cannot be read: {error.strerror}")

    found: list[Path] = []
    seen: set[str] = set()
    for folder, folders, files in os.walk(path, onerror=unreadable, followlinks=True):
        real = os.path.realpath(folder)
        # A link may lead back up.
        folders[:] = [] if real in seen else [n for n in sorted(folders) if not n.startswith(".")]
        if real not in seen:
            found += [
                Path(folder, name)
                for name in files
                if name.endswith(".toml") and name[0] != "." and name != "pyproject.toml"
            ]
        seen.add(real)
    return sorted(found)


def _sound(files: list[tuple[Path, str]]) -> list[Entry | None]:
    """Return installed entries that load; a broken one is no matter of the tree that is checked."""
    from tileops.manifest.load import load_file

    entries: list[Entry | None] = []
    for path, namespace in files:
        try:
            entries.append(load_file(path, namespace=namespace))
        except ManifestError:
            entries.append(None)
    return entries


def _list(arguments: argparse.Namespace) -> int:
    """List the entries, by family."""
    everything = list(iter_entries())
    families = list(dict.fromkeys(entry.family for entry in everything))
    if arguments.family is not None and arguments.family not in families:
        from tileops.manifest.checks.report import closest

        remedy = closest(arguments.family, families)
        raise _UsageError(f"no entry is of the family {arguments.family!r}; {remedy}")
    entries = [
        entry
        for entry in everything
        if arguments.family in (None, entry.family) and arguments.status in (None, entry.status)
    ]
    rows = [
        {
            "name": entry.name,
            "family": entry.family,
            "status": entry.status,
            "operators": len(entry.compile_op_names),
            "summary": entry.summary,
        }
        for entry in entries
    ]
    if arguments.json:
        _print_json(rows)
        return OK
    if not entries:
        print("no entry matches", file=sys.stderr)
    width = max((len(entry.name) for entry in entries), default=0)
    for family in dict.fromkeys(entry.family for entry in entries):
        print(family)
        for entry in entries:
            if entry.family == family:
                print(f"  {entry.name.ljust(width)}  {entry.status:<11}  {entry.summary}")
    return OK


def _show(arguments: argparse.Namespace) -> int:
    """Print an entry as a person reads it."""
    from tileops.manifest.export import export
    from tileops.manifest.show import render

    entry = load_entry(arguments.op, family=arguments.family)
    if arguments.json:
        _print_json(export([entry], __version__)["entries"][0])
    else:
        print(render(entry), end="")
    return OK


def _diff(arguments: argparse.Namespace) -> int:
    """Say what changed between two manifests, and which part of the version must move."""
    from tileops.manifest.diff import compare, required_version
    from tileops.manifest.sources import NotReleasedError, SourceError, read_source
    from tileops.manifest.versions import release

    try:
        old, new = read_source(arguments.old), read_source(arguments.new)
    except NotReleasedError as error:
        print(f"nothing was released, so any version will do: {error}", file=sys.stderr)
        return OK
    except SourceError as error:
        raise _UsageError(str(error)) from None
    difference = compare(old.entries, new.entries)
    level = difference.level
    if old.version is None or (arguments.check and new.version is None):
        unknown = old if old.version is None else new
        if arguments.check:
            raise _UsageError(
                f"{unknown.label} does not say its version (__about__.py), so there is none to "
                "check; name a checkout, a wheel or a git revision, or leave out --check"
            )
    needed, part = required_version(old.version or "0.0.0", level)
    needed_text = ".".join(map(str, needed)) if old.version else None
    moved = new.version is not None and release(new.version) >= needed
    if arguments.json:
        _print_json(
            {
                "old": {"label": old.label, "version": old.version},
                "new": {"label": new.label, "version": new.version},
                "level": None if level is None else str(level),
                "part": part,
                "required_version": needed_text,
                "changes": [
                    {"op": change.op, "level": str(change.level), "text": change.text}
                    for change in difference.changes
                ],
            }
        )
    else:
        for change in difference.changes:
            print(change)
        if level is None:
            print("nothing changed")
        else:
            least = f": at least {needed_text} after {old.version}" if needed_text else ""
            print(f"{level}: the {part} version must move{least}")
    if arguments.check and not moved:
        print(
            f"tileops-manifest: the version is {new.version}, and these changes need at least "
            f"{needed_text}; mend it with: hatch version {needed_text}",
            file=sys.stderr,
        )
        return WRONG
    return OK


def _export(arguments: argparse.Namespace) -> int:
    """Write every entry, with what follows from it, as JSON."""
    from tileops.manifest.export import export

    document = export(list(iter_entries()), __version__)
    if arguments.output is None:
        _print_json(document)
    else:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        try:
            arguments.output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _UsageError(
                f"{arguments.output} cannot be written: {error.strerror}; name a file in a folder "
                "that exists"
            ) from None
    return OK


def _print_json(value: object) -> None:
    # Escapes of JSON's own, where the stream's would break it.
    utf8 = (sys.stdout.encoding or "utf-8").lower().replace("_", "-") in ("utf-8", "utf8")
    print(json.dumps(value, indent=2, ensure_ascii=not utf8))


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
