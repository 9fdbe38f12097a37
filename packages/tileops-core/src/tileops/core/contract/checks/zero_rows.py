"""The check ``zero-rows``."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from tileops.core.contract.check import NotApplicable, check
from tileops.core.contract.checks.cold_compile import cold_compile
from tileops.core.contract.judge import require_alike, require_equal, require_true
from tileops.core.contract.sizes import rows_of, with_rows
from tileops.core.contract.sound import needs_held
from tileops.core.contract.subject import Subject, cold
from tileops.core.contract.writing import require_untouched
from tileops.core.errors import ArgumentError

__all__ = ["zero_rows"]


@check("zero-rows")
def zero_rows(subject: Subject) -> str:
    """A call of no rows gives results of no rows, eager and compiled."""
    axes = rows_of(subject)
    needs_held(subject, cold_compile)
    arguments = with_rows(subject, axes, 0)
    fake = _fake_results(subject, arguments)
    op = subject.make()
    eager = subject.call(op, arguments)
    require_alike(eager.results, fake, "the fake")
    require_untouched(subject, eager)
    if any(value.numel() for value in eager.results.values()) or subject.effects.written:
        require_true(subject, eager, subject.truth(with_rows(subject, axes, 0)))
    with cold(subject.device):
        compiled = torch.compile(subject.make(), backend="aot_eager", fullgraph=True)
        ran = subject.call(compiled, with_rows(subject, axes, 0))
    require_equal(subject, ran, eager, "the eager call's")
    return f"in {', '.join(axes)}"


def _fake_results(subject: Subject, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the fake gives, which runs the op's checks and no kernel.

    Raises:
        NotApplicable: the entry has a rule against such a call.
    """
    mode = FakeTensorMode()
    fakes = {
        name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    try:
        with mode:
            return subject.call(subject.make(), fakes).results
    except ArgumentError as error:
        raise NotApplicable(f"the entry refuses such a call: {error}") from error
