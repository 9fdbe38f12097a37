"""When a case is traced at all."""

from __future__ import annotations

from tileops.core.contract.check import NotApplicable
from tileops.core.contract.subject import Subject
from tileops.core.targets import REFERENCE

__all__ = ["needs_boundary", "needs_cuda", "needs_tensors", "needs_traced"]


def needs_traced(subject: Subject) -> None:
    """Raises where a traced call of the subject is refused by design.

    Raises:
        NotApplicable: the op has no call-time tensor, and an explicit target other than
            ``reference``, which no traced call can be served by.
    """
    if not subject.has_tensors and subject.target not in (None, REFERENCE.name):
        raise NotApplicable(
            f"the op has no call-time tensor: a traced call is plain PyTorch, and the target "
            f"{subject.target!r} serves none"
        )


def needs_tensors(subject: Subject) -> None:
    """Raises where the op has no call-time tensor.

    Raises:
        NotApplicable: it has none.
    """
    if not subject.has_tensors:
        raise NotApplicable("the op has no call-time tensor")


def needs_boundary(subject: Subject) -> None:
    """Raises where the op has no compile boundary, and so no operator and no key.

    Raises:
        NotApplicable: it has none.
    """
    if not subject.has_boundary:
        raise NotApplicable("the op has no compile boundary")


def needs_cuda(subject: Subject) -> None:
    """Raises on a device that has no CUDA graphs.

    Raises:
        NotApplicable: it has none.
    """
    if subject.device.type != "cuda":
        raise NotApplicable(f"needs a CUDA device, and the call is on {subject.device}")
