"""The check ``second-process``."""

from __future__ import annotations

from tileops.core.contract.check import Spent, check
from tileops.core.contract.processes import CACHES
from tileops.core.contract.subject import Subject
from tileops.core.errors import ContractError

__all__ = ["second_process"]


@check("second-process", of_op=True, together=True)
def second_process(subject: Subject) -> Spent:
    """A second equal process finds what the first compiled, in inductor's and AOTAutograd's cache.

    Under ``no_grad``: in grad mode with a ``Parameter`` AOTAutograd keeps nothing until a backward.
    """
    first, second = subject.processes.found(subject, "compile")
    if first["key"] != second["key"]:
        raise ContractError(
            f"the first process has the key {first['key']!r}, the second {second['key']!r}"
        )
    counts = second["caches"]
    told = ", ".join(f"{name} {count}" for name, count in counts.items()) or "nothing"
    missed = [name for name in counts if name.endswith(("_miss", "_bypass")) and counts[name]]
    if missed or not all(counts.get(f"{cache}_hit") for cache in CACHES):
        raise ContractError(f"the second process counted {told}")
    seconds = (first["seconds"], second["seconds"])
    return Spent(f"{seconds[0]:.2f} s, then {seconds[1]:.2f} s: {told}", sum(seconds))
