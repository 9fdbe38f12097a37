"""The check ``called-twice``."""

from __future__ import annotations

import torch

from tileops.core.contract.check import check
from tileops.core.contract.checks.cold_compile import cold_compile
from tileops.core.contract.checks.equals_oracle import equals_oracle
from tileops.core.contract.checks.served import served
from tileops.core.contract.judge import disagreement, require_true
from tileops.core.contract.sound import needs_held
from tileops.core.contract.subject import Subject, cold
from tileops.core.contract.traced import needs_traced
from tileops.core.errors import ContractError
from tileops.core.results import REMEMBERED

__all__ = ["called_twice"]


@check("called-twice")
def called_twice(subject: Subject) -> str:
    """What a call returned survives later calls, and those give their own.

    Eager there are more of them than core remembers results of, so that memory that a target
    rotates through comes round.
    """
    needs_held(subject, served)
    _require(subject, "eager", REMEMBERED + 2)
    needs_traced(subject)
    needs_held(subject, cold_compile)
    with cold(subject.device):
        _require(subject, "inductor", 2)
    return f"{REMEMBERED + 2} calls eager, 2 compiled"


def _require(subject: Subject, way: str, times: int) -> None:
    op = subject.make()
    function = op if way == "eager" else torch.compile(op, backend=way, fullgraph=True)
    first = subject.call(function, subject.inputs(0))
    copies = {name: value.clone() for name, value in first.results.items()}
    for draw in range(1, times):
        second = subject.call(function, subject.inputs(draw))
        for name, copy in copies.items():
            problem = disagreement(first.results[name], copy, None)
            if problem:
                raise ContractError(f"{way}: after {draw} further calls the first {name} {problem}")
    needs_held(subject, equals_oracle)
    try:
        require_true(subject, second, subject.truth(subject.inputs(times - 1)))
    except ContractError as error:
        raise ContractError(f"{way}: of call {times}, {error}") from error
