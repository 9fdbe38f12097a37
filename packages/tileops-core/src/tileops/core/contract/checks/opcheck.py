"""The check ``opcheck``."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tileops.core.contract.check import check
from tileops.core.contract.subject import Subject
from tileops.core.contract.traced import needs_boundary
from tileops.core.errors import ContractError

__all__ = ["opcheck"]


@check("opcheck", of_op=True)
def opcheck(subject: Subject) -> str:
    """``torch.library.opcheck`` finds nothing: schema, autograd registration, fake, AOTAutograd."""
    needs_boundary(subject)
    _ = subject.eager
    op, calls = subject.make(), _Calls(subject.case.op.compile_op_names)
    with calls:
        subject.call(op, subject.inputs())
    if not calls.found:
        raise ContractError("a call of the op reached none of its operators")
    overload, arguments = calls.found[0]
    torch.library.opcheck(overload, arguments)
    return str(overload.name())


class _Calls(TorchDispatchMode):
    """Keeps the calls of some operators, with their arguments as they were before."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[Any, tuple[Any, ...]]] = []
        self._names = names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.OpOverload) and func.name() in self._names:
            copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
            self.found.append((func, tuple(copies)))
        return func(*args, **(kwargs or {}))
