"""Keeps gradients from being lost in silence.

Every op is inference-only. An operator registered with nothing for autograd would return an output
that requires grad, warn at ``backward`` and leave the gradient ``None``; ``register_autograd``
refuses operators that write, and gives zero tangents in forward mode. So each operator gets the
Autograd kernel made here: the call itself works, and whatever asks for a derivative through it
raises an error that names the op and the ways out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._functorch import TransformType, is_gradtrackingtensor, peek_interpreter_stack
from torch.autograd import forward_ad

from tileops.core.errors import GradientError
from tileops.core.registration import OperatorSpec, register

__all__ = ["autograd_kernel"]

_DIFFERENTIATING = (TransformType.Grad, TransformType.Jvp)


def autograd_kernel(
    op: str, overload: Callable[[], Any], written: Sequence[int]
) -> Callable[..., Any]:
    """The Autograd kernel of one operator.

    ``overload`` gives the operator once it is registered; ``written`` are the positions of the
    arguments that it writes.
    """
    written = tuple(written)

    def kernel(keyset: Any, *arguments: Any) -> Any:
        interpreter = peek_interpreter_stack()
        if (
            interpreter is not None
            and interpreter.key() in _DIFFERENTIATING
            and any(isinstance(a, torch.Tensor) and is_gradtrackingtensor(a) for a in arguments)
        ):
            raise GradientError(_message(op))
        if forward_ad._current_level >= 0 or (
            torch.is_grad_enabled()
            and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)
        ):
            results = _InferenceOnly.apply(  # type: ignore[no-untyped-call]
                op, overload(), keyset, written, *arguments
            )
            # The written arguments come last; the operator returns only what it allocated.
            returned = results[: len(results) - len(written)]
            if len(returned) == 1:
                return returned[0]
            return returned or None
        return overload().redispatch(keyset & torch._C._after_autograd_keyset, *arguments)

    return kernel


class _InferenceOnly(torch.autograd.Function):
    """The call, with a backward and a forward-mode derivative that raise."""

    @staticmethod
    def forward(
        ctx: Any, op: str, overload: Any, keyset: Any, written: Sequence[int], *arguments: Any
    ) -> Any:
        below = keyset & torch._C._after_autograd_keyset
        with torch._C._AutoDispatchBelowAutograd():
            result = overload.redispatch(below, *arguments)
        ctx.op = op
        # Shapes, not tensors: an input that is only described need not be kept alive.
        ctx.inputs = [
            (a.shape, a.dtype, a.device) if isinstance(a, torch.Tensor) else None for a in arguments
        ]
        dirty = tuple(arguments[position] for position in written)
        ctx.mark_dirty(*dirty)
        results = () if result is None else result if isinstance(result, tuple) else (result,)
        return (*results, *dirty)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        message = _message(ctx.op)
        inputs = [
            None
            if spec is None or not needed
            else _refuse(gradients, list(spec[0]), spec[1], spec[2], message)
            for spec, needed in zip(ctx.inputs, ctx.needs_input_grad[4:], strict=True)
        ]
        return (None, None, None, None, *inputs)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise GradientError(_message(ctx.op))


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
