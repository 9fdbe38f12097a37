"""What is wrong with an entry, said so that it can be mended: the place, the rule, the value."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

__all__ = ["Fault", "ManifestError", "shown_path"]


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing wrong at one place.

    ``requirement`` is the rule that is broken, ``value`` what stands there (as text, empty where
    nothing does), ``remedy`` how to mend it. It prints as one line, ``FILE:LINE: …``; line
    0 is a fault of the whole file (a missing one).
    """

    path: Path
    line: int
    requirement: str
    value: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        place = f":{self.line}" if self.line else ""
        text = f"{shown_path(self.path)}{place}: {self.requirement}"
        if self.value:
            text += f"; found {self.value}"
        if self.remedy:
            text += f"; {self.remedy}"
        return text

    def as_dict(self) -> dict[str, Any]:
        """Return the fault as plain JSON values."""
        return {
            "path": shown_path(self.path),
            "line": self.line,
            "requirement": self.requirement,
            "value": self.value,
            "remedy": self.remedy,
        }


class ManifestError(Exception):
    """Entries that cannot be used; ``faults`` says all that is wrong with them, in file order."""

    def __init__(self, faults: tuple[Fault, ...] | list[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


def shown_path(path: Path) -> str:
    """Return a path below the working directory relative to it: editors and CI link such paths."""
    try:
        return str(path.relative_to(os.getcwd()))
    except (ValueError, OSError):
        return str(path)
