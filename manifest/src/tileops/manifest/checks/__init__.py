"""The checks of an entry, by level: schema, then meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tileops.manifest.build import build_entry
from tileops.manifest.checks.effects import check_effects
from tileops.manifest.checks.grammar import check_grammar
from tileops.manifest.checks.report import Report
from tileops.manifest.checks.schema import check_schema
from tileops.manifest.checks.shapes import check_shapes
from tileops.manifest.checks.signature import check_signature
from tileops.manifest.model import Entry

__all__ = ["examine"]


def examine(document: Mapping[str, Any], report: Report, namespace: str) -> Entry | None:
    """Check a document and return the entry that it describes, or None where it describes none.

    These are the checks of every load: the schema, the grammar of expressions and the meaning of
    the signature. They cost less than parsing the file did. An entry is right where the report has
    no faults.
    """
    if not check_schema(document, report):
        return None
    check_grammar(document, report)
    if report.faults:
        return None
    entry = build_entry(document, report.lines, report.path, namespace)
    check_signature(entry, report)
    check_shapes(entry, report)
    return dataclasses.replace(entry, branches=check_effects(entry, report))
