"""The check ``strided``."""

from __future__ import annotations

import torch

from tileops.core.contract.check import check
from tileops.core.contract.checks.cold_compile import cold_compile
from tileops.core.contract.checks.equals_oracle import equals_oracle
from tileops.core.contract.judge import require_alike, require_equal, require_true
from tileops.core.contract.layouts import LAYOUTS, laid_out
from tileops.core.contract.sound import needs_held
from tileops.core.contract.subject import Subject, cold
from tileops.core.contract.traced import needs_tensors
from tileops.core.contract.writing import require_untouched
from tileops.core.errors import ContractError

__all__ = ["strided"]


@check("strided")
def strided(subject: Subject) -> str:
    """Inputs in any layout give the same, and are written through their strides alone."""
    needs_tensors(subject)
    needs_held(subject, cold_compile, equals_oracle)
    truth = subject.truth(subject.inputs())
    for layout in LAYOUTS:
        ways = {"eager": subject.make(), "inductor": subject.make()}
        runs = {}
        for way, op in ways.items():
            arguments, rooms = laid_out(subject.inputs(), layout)
            try:
                if way == "eager":
                    ran = runs[way] = subject.call(op, arguments)
                else:
                    with cold(subject.device):
                        compiled = torch.compile(op, backend=way, fullgraph=True)
                        ran = runs[way] = subject.call(compiled, arguments)
                    require_equal(subject, ran, runs["eager"], "the eager call's")
                require_true(subject, ran, truth)
                plain = {
                    name: value
                    for name, value in subject.eager.results.items()
                    if name not in subject.effects.aliases
                }
                require_alike(
                    ran.results,
                    plain,
                    "that of contiguous inputs",
                    # A compiled composite's are the compiler's: see require_equal.
                    strides_count=way == "eager" or not subject.case.op.entry.composition,
                )
                require_untouched(subject, ran)
                for name, room in rooms.items():
                    if not room.is_untouched(arguments[name]):
                        raise ContractError(f"memory beside {name} was written")
            except ContractError as error:
                raise ContractError(f"{layout}, {way}: {error}") from error
    return f"{' and '.join(LAYOUTS)}, each at an unaligned start"
