"""GatedMLPFwdOp: add and norm, gate and up projection, activation, down projection."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.nn import functional

from tileops.core import Op
from tileops.norm import FusedAddRMSNormFwdOp

__all__ = ["ACTIVATIONS", "GatedMLPFwdOp"]

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
}


class GatedMLPFwdOp(Op):
    """The feed-forward half of a pre-norm transformer block (https://arxiv.org/abs/2002.05202).

    ``residual_out = x + residual``; ``g`` and ``u`` are the halves of ``rmsnorm(residual_out)
    gate_up_weight.T``; ``y = (activation(g) * u) down_weight.T``. The sum is rounded to ``x``'s
    dtype and then normalized, as by :class:`~tileops.norm.FusedAddRMSNormFwdOp`.

    A composite: in a compiled graph the addition with its norm is one node, the rest is PyTorch's.

    Args:
        hidden_size: the size of a token's vector.
        activation: "silu", "gelu" or "gelu_tanh", applied to the gate.
        eps: added to the mean square.
        target: the name of the target to serve the sub-op; None chooses by device.

    Call:
        ``op(x, residual, norm_weight, gate_up_weight, down_weight)``, all of one dtype, float16,
        bfloat16 or float32. ``x``, what the layer before gave, and ``residual``, the sum of those
        before it, are ``[B, S, hidden_size]``; ``norm_weight`` is ``[hidden_size]``;
        ``gate_up_weight`` is ``[G, hidden_size]``, the rows of the gate and then as many that it
        gates; ``down_weight`` is ``[hidden_size, G // 2]``. Returns ``(y, residual_out)``, both
        ``[B, S, hidden_size]``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    hidden_size: int
    activation: str
    eps: float

    def __init__(
        self,
        hidden_size: int,
        activation: str = "silu",
        eps: float = 1e-6,
        *,
        target: str | None = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.activation = activation
        self.eps = eps
        super().__init__(target=target)
        self.norm = self.sub_op(FusedAddRMSNormFwdOp, self.hidden_size, self.eps)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        norm_weight: torch.Tensor,
        gate_up_weight: torch.Tensor,
        down_weight: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, residual_out = self.norm(x, residual, norm_weight)
        gate, up = functional.linear(hidden, gate_up_weight).chunk(2, -1)
        gated = ACTIVATIONS[self.activation](gate) * up
        return functional.linear(gated, down_weight), residual_out
