"""AdaLNZeroBlockFwdOp: a diffusion transformer's block."""

from __future__ import annotations

import torch
from torch.nn import functional

from tileops.composite.attention import attend
from tileops.core import Op
from tileops.norm import AdaLayerNormFwdOp, AdaLayerNormZeroFwdOp

__all__ = ["AdaLNZeroBlockFwdOp"]


class AdaLNZeroBlockFwdOp(Op):
    """A diffusion transformer's block, adaLN-Zero (https://arxiv.org/abs/2212.09748), as of DiT.

    ``silu(c) ada_weight.T + ada_bias`` are the shift, scale and gate of attention and those of the
    feed-forward layer, in this order, one row a sample. With them::

        a = attention(layernorm(x) * (1 + scale1) + shift1)
        r = x + gate1 * a
        y = r + gate2 * mlp(layernorm(r) * (1 + scale2) + shift2)

    Attention is full, between projections with biases, and the feed-forward layer is two with
    ``gelu_tanh`` between them. The norms have no weights.

    A composite: in a compiled graph the first modulated norm is one node, the gated sum with the
    second is another, and the rest, attention among it, is PyTorch's.

    Args:
        hidden_size: the size of a token's vector.
        num_heads: heads, which split it equally.
        eps: added to the variances.
        target: the name of the target to serve the sub-ops; None chooses by device.

    Call:
        ``op(x, c, ada_weight, ada_bias, qkv_weight, qkv_bias, o_weight, o_bias, fc1_weight,
        fc1_bias, fc2_weight, fc2_bias)``, all of one dtype, float16, bfloat16 or float32. ``x`` are
        the tokens, ``[B, S, hidden_size]``; ``c`` is what conditions each sample, time and class,
        ``[B, hidden_size]``. Weights are as in ``torch.nn.Linear``: ``[6 * hidden_size,
        hidden_size]``, ``[3 * hidden_size, hidden_size]`` for the rows of q, of k, of v,
        ``[hidden_size, hidden_size]``, ``[I, hidden_size]`` and ``[hidden_size, I]``. Returns
        ``y``, ``[B, S, hidden_size]``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    hidden_size: int
    num_heads: int
    eps: float

    def __init__(
        self, hidden_size: int, num_heads: int, eps: float = 1e-6, *, target: str | None = None
    ) -> None:
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.eps = eps
        super().__init__(target=target)
        self.norm = self.sub_op(AdaLayerNormFwdOp, self.eps)
        self.gated_norm = self.sub_op(AdaLayerNormZeroFwdOp, self.eps)

    def forward(
        self,
        x: torch.Tensor,
        c: torch.Tensor,
        ada_weight: torch.Tensor,
        ada_bias: torch.Tensor,
        qkv_weight: torch.Tensor,
        qkv_bias: torch.Tensor,
        o_weight: torch.Tensor,
        o_bias: torch.Tensor,
        fc1_weight: torch.Tensor,
        fc1_bias: torch.Tensor,
        fc2_weight: torch.Tensor,
        fc2_bias: torch.Tensor,
    ) -> torch.Tensor:
        modulation = functional.linear(functional.silu(c), ada_weight, ada_bias)
        shift1, scale1, gate1, shift2, scale2, gate2 = modulation.chunk(6, -1)
        qkv = functional.linear(self.norm(x, scale1, shift1), qkv_weight, qkv_bias)
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        attended = attend(q, k, v, causal=False, grouped=False)
        attended = functional.linear(attended, o_weight, o_bias)
        hidden, residual = self.gated_norm(attended, x, gate1, scale2, shift2)
        hidden = functional.gelu(
            functional.linear(hidden, fc1_weight, fc1_bias), approximate="tanh"
        )
        hidden = functional.linear(hidden, fc2_weight, fc2_bias)
        # One operator, which rounds once.
        return torch.addcmul(residual, gate2.unsqueeze(1), hidden)
