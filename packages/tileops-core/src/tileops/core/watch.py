"""Whether anything watches a call, so that it must go through PyTorch's dispatcher.

A call that nothing watches may run its body at once, which saves a third of its host time. Whatever
watches PyTorch operators (dispatch and function modes, functorch, fake mode, the profiler, tensor
subclasses, ``make_fx``, export) must see the op's operator, so each of them is asked here. Names
that begin with an underscore are PyTorch's own and may move: this is the only place that reads
them for this purpose, and where one is missing every call goes through the dispatcher.

``ExecutionTraceObserver`` shows in none of these; a run that uses it sets
``set_dispatcher_bypass(False)`` or ``TILEOPS_DISPATCHER_BYPASS=0``.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.autograd.forward_ad
import torch.autograd.profiler

__all__ = ["PROBES", "UNWATCHED", "dispatcher_bypass", "set_dispatcher_bypass"]

_NEEDED = (
    "torch._C._len_torch_dispatch_stack",
    "torch._C._len_torch_function_stack",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._get_tracing_state",
    "torch._C._autograd._profiler_enabled",
    "torch._C._dispatch_keys",
    "torch.autograd.forward_ad._current_level",
    "torch.autograd.profiler._is_profiler_enabled",
)


class Switch:
    """On while calls that nothing watches may leave the dispatcher out."""

    __slots__ = ("off",)

    def __init__(self) -> None:
        self.off = not _available() or os.environ.get("TILEOPS_DISPATCHER_BYPASS", "1") == "0"


def _available() -> bool:
    for name in _NEEDED:
        found: Any = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        if found is None:
            return False
    return True


_switch = Switch()


def dispatcher_bypass() -> bool:
    """Whether calls that nothing watches leave the dispatcher out."""
    return not _switch.off


def set_dispatcher_bypass(on: bool) -> None:
    """Lets calls that nothing watches leave the dispatcher out, or sends every call through it.

    Both ways give the same results and errors. ``on`` has no effect where this PyTorch lacks what
    the decision is made by.
    """
    _switch.off = not on or not _available()


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)

# The dispatch key sets of tensors that are nothing but memory on a CPU or a CUDA device. Learnt as
# they come: a set is the same for all tensors of one kind.
_plain_keys: set[int] = set()


def _learn(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is plain memory; a kind that is gets known for the next call."""
    plain = (
        tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not tensor._is_zerotensor()
        and not tensor.is_nested
        and not tensor.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._is_functional_tensor(tensor)
    )
    if plain:
        _plain_keys.add(torch._C._dispatch_keys(tensor).raw_repr())
    return plain


PROBES: dict[str, Any] = {
    "_switch": _switch,
    "_compiling": torch.compiler.is_compiling,
    "_grad_enabled": torch.is_grad_enabled,
    "_plain_types": _PLAIN_TYPES,
    "_plain_keys": _plain_keys,
    "_learn": _learn,
    "_profiler": torch.autograd.profiler,
    "_forward_ad": torch.autograd.forward_ad,
}
"""What the generated ``__call__`` asks, by the names that its source uses."""

if _available():
    PROBES |= {
        "_dispatch_stack": torch._C._len_torch_dispatch_stack,
        "_function_stack": torch._C._len_torch_function_stack,
        "_interpreter": torch._C._functorch.peek_interpreter_stack,
        "_tracing": torch._C._get_tracing_state,
        "_profiling": torch._C._autograd._profiler_enabled,
        "_keys": torch._C._dispatch_keys,
    }

UNWATCHED = (
    # First: dynamo folds it while it traces, and reads nothing further.
    "not _compiling()",
    "not _switch.off",
    "not _dispatch_stack()",
    "not _function_stack()",
    "_interpreter() is None",
    "_tracing() is None",
    "not _profiling()",
    "not _profiler._is_profiler_enabled",
    "_forward_ad._current_level < 0",
)
"""The conditions, in the order in which they are asked, under which nothing watches."""
