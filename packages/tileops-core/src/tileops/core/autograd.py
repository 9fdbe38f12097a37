"""Keeps gradients from being lost in silence.

Every op is inference-only. An operator registered with nothing for autograd would return an output
that requires grad, warn at ``backward`` and leave the gradient ``None``; ``register_autograd``
refuses operators that write, and gives zero tangents in forward mode. So each operator gets the
Autograd kernel made here: the call itself works, and whatever asks for a derivative through it
raises an error that names the op and the ways out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch.autograd import forward_ad

from tileops.core.errors import GradientError
from tileops.core.registration import OperatorSpec, register

__all__ = ["autograd_kernel"]

_DIFFERENTIATING = (TransformType.Grad, TransformType.Jvp)


def autograd_kernel(
    op: str, overload: Callable[[], Any], written: Mapping[int, str]
) -> Callable[..., Any]:
    """The Autograd kernel of one operator.

    ``overload`` gives the operator once it is registered; ``written`` maps the positions of the
    arguments that it writes to their names.
    """

    def kernel(keyset: Any, *arguments: Any) -> Any:
        interpreter = peek_interpreter_stack()
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        asked = torch.is_grad_enabled() and any(a.requires_grad for a in tensors)
        if interpreter is not None:
            # A transform lifts every tensor to its level; only those that it follows count.
            if interpreter.key() == TransformType.Jvp:
                asked = any(forward_ad.unpack_dual(a).tangent is not None for a in tensors)
            if asked and interpreter.key() in _DIFFERENTIATING:
                raise GradientError(_message(op))
            return overload().redispatch(keyset & torch._C._after_autograd_keyset, *arguments)
        if forward_ad._current_level < 0 and not asked:
            return overload().redispatch(keyset & torch._C._after_autograd_keyset, *arguments)
        for position, name in written.items():
            _check_writable(op, name, arguments[position])
        result = _Call.apply(op, overload(), keyset, *arguments)
        # One node for each written tensor: a node that writes a view may return nothing else.
        for position in written:
            _Written.apply(op, arguments[position], *arguments)
        return result

    return kernel


def _check_writable(op: str, name: str, tensor: torch.Tensor) -> None:
    """Raises where PyTorch refuses an in-place write, before anything is written.

    Raises:
        GradientError: ``tensor`` is a leaf that requires grad, or a view that autograd cannot
            follow a write through.
    """
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return
    base = tensor._base if tensor._is_view() else None
    if tensor.is_leaf or (base is not None and base.is_leaf and base.requires_grad):
        kind = "a leaf" if tensor.is_leaf else "a view of a leaf"
        raise GradientError(
            f"{op}: {name} is written and is {kind} that requires grad; call the op under "
            f"torch.no_grad(), or pass {name}.detach()"
        )
    if base is not None and _creation(tensor) not in ("DEFAULT", ""):
        raise GradientError(
            f"{op}: {name} is written and is a view that autograd cannot follow a write through "
            f"(one of several that one call returned, or made in no_grad mode); pass a clone"
        )


def _creation(view: torch.Tensor) -> str:
    get = getattr(torch._C._autograd, "_get_creation_meta", None)
    return "" if get is None else str(get(view)).rpartition(".")[2]


class _InferenceOnly(torch.autograd.Function):
    """A node whose backward and whose forward-mode derivative raise."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        message = _message(ctx.op)
        return tuple(
            None
            if spec is None or not needed
            else _refuse(gradients, list(spec[0]), spec[1], spec[2], message)
            for spec, needed in zip(ctx.inputs, ctx.needs_input_grad, strict=True)
        )

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise GradientError(_message(ctx.op))


class _Call(_InferenceOnly):
    """The call itself: returns what the operator allocates."""

    @staticmethod
    def forward(ctx: Any, op: str, overload: Any, keyset: Any, *arguments: Any) -> Any:
        _remember(ctx, op, (None, None, None, *arguments))
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


class _Written(_InferenceOnly):
    """Marks a tensor that the call wrote: what it held before does not reach its readers."""

    @staticmethod
    def forward(ctx: Any, op: str, tensor: torch.Tensor, *arguments: Any) -> Any:
        _remember(ctx, op, (None, tensor, *arguments))
        ctx.mark_dirty(tensor)
        return tensor


def _remember(ctx: Any, op: str, arguments: Sequence[Any]) -> None:
    ctx.op = op
    # Shapes, not tensors: an input that is only described need not be kept alive.
    ctx.inputs = [
        (a.shape, a.dtype, a.device) if isinstance(a, torch.Tensor) else None for a in arguments
    ]


def _message(op: str) -> str:
    return (
        f"{op} serves inference and has no derivative; call it under torch.no_grad() or "
        f"torch.inference_mode(), detach its inputs, or use the PyTorch operators that its "
        f"entry's reference names where a gradient is needed"
    )


def _refuse_body(
    gradients: Sequence[torch.Tensor], shape: Sequence[int], dtype: Any, device: Any, message: str
) -> torch.Tensor:
    raise GradientError(message)


def _refuse_fake(
    gradients: Sequence[torch.Tensor], shape: Sequence[int], dtype: Any, device: Any, message: str
) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


# Opaque, because AOTAutograd traces the backward when it compiles the forward: raising there would
# fail a call that never asks for a gradient.
(_refuse,) = register(
    [
        OperatorSpec(
            namespace="tileops",
            name="core_refuse_gradient",
            signature=(
                "(Tensor[] gradients, SymInt[] shape, ScalarType dtype, Device device, "
                "str message) -> Tensor"
            ),
            body=_refuse_body,
            fake=_refuse_fake,
            autograd=None,
            owner="tileops.core",
        )
    ]
)
