"""The manifest: one validated description of every op, read lazily and without torch."""

from tileops.manifest.__about__ import __version__
from tileops.manifest.contract import contract_document
from tileops.manifest.expressions import Expression, ExpressionError
from tileops.manifest.faults import Fault, ManifestError
from tileops.manifest.load import (
    EntryRoot,
    add_entry_root,
    entry_roots,
    iter_entries,
    load_entry,
    load_file,
    load_text,
)
from tileops.manifest.model import MISSING, Branch, Entry
from tileops.manifest.versions import VersionSkewError, require_siblings

__all__ = [
    "MISSING",
    "Branch",
    "Entry",
    "EntryRoot",
    "Expression",
    "ExpressionError",
    "Fault",
    "ManifestError",
    "VersionSkewError",
    "__version__",
    "add_entry_root",
    "contract_document",
    "entry_roots",
    "iter_entries",
    "load_entry",
    "load_file",
    "load_text",
    "require_siblings",
]
