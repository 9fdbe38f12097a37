"""The manifest as one JSON document, for tools that read no TOML and no expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tileops.manifest.calls import Call, least_work, resolve
from tileops.manifest.model import Entry
from tileops.manifest.work import TensorFacts

__all__ = ["FORMAT", "export"]

FORMAT: Final = 1
"""Moves when the export changes so that a reader must know."""


def export(entries: Sequence[Entry], version: str) -> dict[str, Any]:
    """Return the export of some entries: each as it was written, and what follows from it.

    The document is described by ``schema/manifest-export.schema.json``.
    """
    return {
        "format": FORMAT,
        "manifest_version": version,
        "entries": [_entry(entry) for entry in sorted(entries, key=lambda e: (e.family, e.name))],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "namespace": entry.namespace,
        "snake": entry.snake,
        "file": f"{entry.family}/{entry.path.name}",
        "entry": dict(entry.document),
        "has_boundary": entry.has_boundary,
        "operators": [
            {
                "name": f"{entry.namespace}::{branch.operator}",
                "writes": list(branch.written),
                "fills_out": branch.out,
                "omits": list(branch.omitted),
                "returns": list(branch.returns),
            }
            for branch in (entry.branches if entry.has_boundary else ())
        ],
        "workloads": [
            {"label": workload.label, **_call(entry, resolve(entry, workload))}
            for workload in entry.workloads
        ],
    }


def _call(entry: Entry, call: Call) -> dict[str, Any]:
    flops, moved = least_work(entry, call)
    return {
        "inputs": {
            name: None if facts is None else _tensor(facts) for name, facts in call.inputs.items()
        },
        "outputs": {name: _tensor(facts) for name, facts in call.outputs.items()},
        "flops": flops,
        "bytes": moved,
    }


def _tensor(facts: TensorFacts) -> dict[str, Any]:
    return {"dtype": facts.dtype, "shape": list(facts.shape)}
