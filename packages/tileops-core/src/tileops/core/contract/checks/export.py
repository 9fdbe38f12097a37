"""The check ``export``."""

from __future__ import annotations

from tileops.core.contract.check import Spent, check
from tileops.core.contract.subject import Subject

__all__ = ["export"]


@check("export", of_op=True, together=True)
def export(subject: Subject) -> Spent:
    """Exported and saved, a program loads in a fresh process and gives what it gave eager.

    Without the constructor's target, which a program does not hold.
    """
    first, second = subject.processes.found(subject, "export")
    seconds = (first["seconds"], second["seconds"])
    told = f"exported in {seconds[0]:.2f} s, loaded and run in {seconds[1]:.2f} s"
    return Spent(told, sum(seconds))
