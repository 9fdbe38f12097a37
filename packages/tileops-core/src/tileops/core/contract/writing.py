"""What a call may write, and whose tensors it may return."""

from __future__ import annotations

from typing import Any

import torch

from tileops.core.contract.judge import disagreement
from tileops.core.contract.subject import Ran, Subject
from tileops.core.errors import ContractError

__all__ = ["require_untouched"]


def require_untouched(subject: Subject, ran: Ran) -> None:
    """Requires that the call have written nothing else, and have returned tensors of its own.

    A result that the entry says is the caller's own tensor is that one.

    Raises:
        ContractError: it has not.
    """
    effects = subject.effects
    for name, before in ran.before.items():
        if (
            isinstance(before, torch.Tensor)
            and name not in effects.written
            and disagreement(ran.given[name], before, None)
        ):
            raise ContractError(f"the call wrote {name}, which the entry does not let it")
    for name, value in ran.results.items():
        argument = effects.aliases.get(name)
        if argument is not None and value is not ran.given[argument]:
            raise ContractError(f"the result {name} is not the caller's own {argument}")
        if argument is None:
            for other, tensor in ran.given.items():
                if _overlap(value, tensor):
                    raise ContractError(f"the result {name} shares memory with {other}")


def _overlap(one: Any, other: Any) -> bool:
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return tensors and one.numel() > 0 and bool(torch._C._overlaps(one, other))
