"""Puts the repository's JSON Schemas into tileops-manifest.

The schemas live in ``schema/`` at the top of the repository, where editors and other tools look
for them. A source distribution has no such folder above it, so it carries a copy beside this file
and a wheel is the same whether it is built from the checkout or from the source distribution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = {"sdist": "schema", "wheel": "tileops/manifest/schema"}


class SchemaBuildHook(BuildHookInterface[Any]):
    """Adds every ``schema/*.json`` to the source distribution and to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Map each schema to its place in the archive.

        An editable install reads the checkout's own folder and gets no copy.

        Raises:
            FileNotFoundError: No schema lies beside this file or one folder up.
        """
        if version == "editable":
            return
        place = PLACES[self.target_name]
        for schema in find_schemas(Path(self.root)):
            build_data["force_include"][str(schema)] = f"{place}/{schema.name}"


def find_schemas(root: Path) -> list[Path]:
    """Return the schemas of an unpacked source distribution, or else of the checkout.

    Raises:
        FileNotFoundError: Neither place holds a schema.
    """
    for folder in (root / "schema", root.parent / "schema"):
        schemas = sorted(folder.glob("*.json"))
        if schemas:
            return schemas
    message = f"no JSON Schema in {root / 'schema'} or {root.parent / 'schema'}"
    raise FileNotFoundError(message)
