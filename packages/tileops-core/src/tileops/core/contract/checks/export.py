from __future__ import annotations

from tileops.core.contract.check import check
from tileops.core.contract.subject import Subject

__all__ = ["export"]


@check("export", of_op=True, together=True)
def export(subject: Subject) -> str:
    """Exported and saved, a program loads in a fresh process and gives what it gave eager.

    Without the constructor's target, which a program does not hold.
    """
    first, second = subject.processes.found(subject, "export")
    return f"exported in {first['seconds']:.2f} s, loaded and run in {second['seconds']:.2f} s"
