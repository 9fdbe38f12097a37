"""Validating entries, all faults at once.

Level 1 is the JSON Schema, level 2 what an entry means, level 3 whether the installed families
agree with it. The first two need no torch; the third is core's, and joins where core is installed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path

from tileops.manifest.checks import examine
from tileops.manifest.checks.catalogue import check_catalogue, check_file_name
from tileops.manifest.checks.report import Report
from tileops.manifest.checks.workloads import check_roofline, check_tolerances, check_workloads
from tileops.manifest.faults import Fault, ManifestError
from tileops.manifest.load import EntryRoot, entry_roots, iter_files, parse_text, read_text
from tileops.manifest.model import Entry

__all__ = ["Validation", "conformance_faults", "validate_files", "validate_roots"]


@dataclasses.dataclass(frozen=True)
class Validation:
    """What was found: the entries that could be built, and every fault, by file and line."""

    entries: tuple[Entry, ...]
    faults: tuple[Fault, ...]


def validate_roots(roots: Iterable[EntryRoot] | None = None) -> Validation:
    """Validate every entry of some roots, or of all that are installed."""
    roots = entry_roots() if roots is None else tuple(roots)
    return validate_files([(path, root.namespace) for root in roots for path in iter_files(root)])


def validate_files(files: Sequence[tuple[Path, str]], known: Iterable[Entry] = ()) -> Validation:
    """Validate files, each with its operators' namespace, on levels 1 and 2.

    ``known`` are valid entries beside them, which compositions may name.
    """
    faults: list[Fault] = []
    read: list[tuple[Entry, Report]] = []
    for path, namespace in files:
        try:
            text = read_text(path)
            entry, report = _examine(path, text, namespace)
        except ManifestError as error:
            faults.extend(error.faults)
            continue
        if entry is None:
            faults.extend(report.sorted())
            continue
        check_file_name(entry, report)
        read.append((entry, report))
    check_catalogue(read, {entry.name: entry for entry in known})
    for _, report in read:
        faults.extend(report.sorted())
    faults.sort(key=lambda fault: (str(fault.path), fault.line))
    return Validation(tuple(entry for entry, _ in read), tuple(faults))


def conformance_faults(entries: Sequence[Entry]) -> list[Fault] | None:
    """Return the faults of level 3, or None where core is not installed."""
    try:
        if importlib.util.find_spec("tileops.core.conformance") is None:
            return None
    except ModuleNotFoundError:
        return None
    module = importlib.import_module("tileops.core.conformance")
    faults: list[Fault] = module.check(entries)
    return faults


def _examine(path: Path, text: str, namespace: str) -> tuple[Entry | None, Report]:
    """Check one entry by itself; without an entry the report says why there is none."""
    document = parse_text(path, text)
    report = Report(path, text)
    entry = examine(document, report, namespace)
    if entry is None:
        return None, report
    check_roofline(entry, report)
    sound = not report.faults
    check_tolerances(entry, report)
    check_workloads(entry, report, sound=sound)
    return entry, report
