"""The check ``equals-oracle``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops.core.contract.check import Blocked, NotApplicable, check
from tileops.core.contract.judge import require_true
from tileops.core.contract.subject import BACKENDS, Ran, Subject
from tileops.core.contract.traced import needs_traced
from tileops.core.errors import ContractError

__all__ = ["equals_oracle"]


@check("equals-oracle")
def equals_oracle(subject: Subject) -> str:
    """Eager and compiled, results are the float64 formula's within the entry's tolerance.

    Eager where memory is filled with NaN before a kernel writes it.
    """
    truth = subject.truth(subject.inputs())
    unknown = _require(subject, "eager", subject.filled, truth)
    try:
        needs_traced(subject)
    except NotApplicable as reason:
        return f"eager alone: {reason}"
    for backend in BACKENDS:
        try:
            ran = subject.compiled(backend).ran
        except Blocked:
            # cold-compile says so; the formula is not what is wrong.
            continue
        _require(subject, f"compiled by {backend}", ran, truth)
    return f"the oracle has no {', '.join(unknown)}" if unknown else ""


def _require(subject: Subject, how: str, ran: Ran, truth: Mapping[str, Any]) -> list[str]:
    try:
        return require_true(subject, ran, truth)
    except ContractError as error:
        raise ContractError(f"{how}, {error}") from error
