"""The installed families, found through the entry-point group ``tileops.families``."""

from __future__ import annotations

from importlib.metadata import entry_points

__all__ = ["load_families"]


def load_families() -> tuple[str, ...]:
    """Imports every installed family and returns their names.

    A process that loads an exported program calls this first, so that the program's operators and
    the ops behind its keys are there: ``load_families()``, then ``torch.export.load(path)`` or
    ``torch._inductor.aoti_load_package(path)``. Without it PyTorch says that it "failed to resolve
    torch.ops.tileops.norm_rms_norm_fwd.default", or that it "could not find schema for
    tileops::norm_rms_norm_fwd": the name begins with the family to install and import.
    """
    points = sorted(entry_points(group="tileops.families"), key=lambda point: point.name)
    for point in points:
        point.load()
    return tuple(point.name for point in points)
