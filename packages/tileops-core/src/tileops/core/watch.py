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
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad
import torch.autograd.profiler
import torch.overrides
from torch.utils._device import DeviceContext

__all__ = [
    "EXPORTING",
    "PROBES",
    "TRACED",
    "UNTRACED",
    "UNWATCHED",
    "default_device",
    "dispatcher_bypass",
    "not_compiled",
    "set_dispatcher_bypass",
    "traces",
]

_NEEDED = (
    "torch._C._len_torch_dispatch_stack",
    "torch._C._len_torch_function_stack",
    "torch._C._dispatch_tls_is_dispatch_key_included",
    "torch._C.DispatchKey.PreDispatch",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._is_tracing",
    "torch._C._autograd._profiler_enabled",
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

PROBES: dict[str, Any] = {
    "_switch": _switch,
    "_compiler": torch.compiler,
    "_compiling": torch.compiler.is_compiling,
    "_grad_enabled": torch.is_grad_enabled,
    "_plain_types": _PLAIN_TYPES,
    "_profiler": torch.autograd.profiler,
    "_forward_ad": torch.autograd.forward_ad,
}
"""What the generated source asks, by the names that its source uses."""

if _available():
    PROBES |= {
        "_dispatch_stack": torch._C._len_torch_dispatch_stack,
        "_included": torch._C._dispatch_tls_is_dispatch_key_included,
        "_PRE_DISPATCH": torch._C.DispatchKey.PreDispatch,
        "_function_stack": torch._C._len_torch_function_stack,
        "_interpreter": torch._C._functorch.peek_interpreter_stack,
        "_tracing": torch._C._is_tracing,
        "_profiling": torch._C._autograd._profiler_enabled,
    }

EXPORTING = (
    # Dynamo of PyTorch 2.11 takes is_exporting() for True whenever it traces; the flag behind it
    # is True during an export alone.
    "_compiler._is_exporting_flag"
    if hasattr(torch.compiler, "_is_exporting_flag")
    else "_compiler.is_exporting()"
)
"""The condition under which a call is being exported."""

TRACED = "False"
"""The condition under which something may keep a call, other than what traces fake tensors."""

if _available():
    # The flag is the process's: a call that another thread makes meanwhile is not exported.
    EXPORTING += " and (_compiler.is_dynamo_compiling() or _dispatch_stack())"
    TRACED = "not _compiling() and (_dispatch_stack() or _tracing())"

UNWATCHED = (
    "not _switch.off",
    "not _dispatch_stack()",
    # make_fx(pre_dispatch=True) and export keep a stack of modes of their own behind this key.
    "not _included(_PRE_DISPATCH)",
    "not _function_stack()",
    "_interpreter() is None",
    "not _tracing()",
    "not _profiling()",
    "not _profiler._is_profiler_enabled",
    "_forward_ad._current_level < 0",
)
"""The conditions under which nothing watches an operator."""

UNTRACED = "not _compiling()"
"""The condition, for a call, that is asked before them: dynamo folds it while it traces, and reads
nothing further."""


_AVAILABLE = _available()


def traces() -> bool:
    """Whether anything but dynamo traces, fakes or transforms what PyTorch does in this thread.

    Any dispatch or function mode counts, since some trace, but not the one behind ``with
    torch.device(...)``. What only watches, as the profiler, does not. Where this PyTorch cannot
    say, the answer is yes.
    """
    if not _AVAILABLE:
        return True
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch)
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._is_tracing()
        or (torch._C._len_torch_function_stack() and _function_mode())
    )


def _function_mode() -> bool:
    """Whether a function mode is on that does more than to set the default device."""
    found = torch.overrides._get_current_function_mode_stack()
    return any(not isinstance(mode, DeviceContext) for mode in found)


def not_compiled(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``, kept from dynamo as ``torch.compiler.disable`` would.

    Where a graph breaks, dynamo compiles the functions that the rest calls one by one, each as if
    it had been asked for.
    """
    # torch.compiler.disable imports dynamo, which takes as long as importing torch does.
    set_callback = torch._C._dynamo.eval_frame.set_eval_frame
    callback = set_callback(None)
    try:
        return function(*arguments)
    finally:
        set_callback(callback)


def default_device() -> torch.device:
    """PyTorch's default device: the CPU, unless a function mode says another."""
    if not _AVAILABLE or torch._C._len_torch_function_stack():
        return torch.get_default_device()
    return _CPU


_CPU = torch.device("cpu")
