"""The installed families, found through the entry-point group ``tileops.families``."""

from __future__ import annotations

from importlib.metadata import entry_points

from tileops.core.errors import FamilyError

__all__ = ["load_families"]


def load_families() -> tuple[str, ...]:
    """Imports every installed family and returns their names.

    A process that loads an exported program calls this first, so that the program's operators and
    the ops behind its keys are there: ``load_families()``, then ``torch.export.load(path)``.

    Raises:
        FamilyError: some could not be imported; the others are.
    """
    found, failed = [], []
    for point in sorted(entry_points(group="tileops.families"), key=lambda point: point.name):
        try:
            point.load()
            found.append(point.name)
        # A package that ends the process where it cannot be used takes no other with it.
        except (Exception, SystemExit) as error:
            failed.append((point, error))
    if failed:
        reasons = "; ".join(
            f"{point.name} ({point.value}): {type(error).__name__}: {error}"
            for point, error in failed
        )
        raise FamilyError(
            f"{len(failed)} installed families could not be imported: {reasons}; mend or uninstall "
            f"them (`tileops doctor` shows the versions of all that is installed)"
        ) from failed[0][1]
    return tuple(found)
