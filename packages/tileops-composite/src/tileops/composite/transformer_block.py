"""TransformerBlockFwdOp: a whole pre-norm transformer block."""

from __future__ import annotations

import torch

from tileops.composite.gated_mlp import GatedMLPFwdOp
from tileops.composite.pre_norm_attention import PreNormAttentionFwdOp
from tileops.core import Op

__all__ = ["TransformerBlockFwdOp"]


class TransformerBlockFwdOp(Op):
    """A whole pre-norm transformer block: attention, then the gated feed-forward layer.

    ``a, r = attention(x, residual)``, as :class:`PreNormAttentionFwdOp`; ``y, residual_out =
    mlp(a, r)``, as :class:`GatedMLPFwdOp`. Blocks follow each other as ``x, residual = block(x,
    residual, ...)``; the first takes the embeddings and ``torch.zeros_like`` of them, and the norm
    after the last one is of ``x + residual``.

    A composite of composites: in a compiled graph there are three nodes, two of additions with
    their norms and one of the rotation, and PyTorch's own.

    Args:
        hidden_size: the size of a token's vector.
        num_heads: query heads.
        num_kv_heads: key-value heads, each for equally many query heads.
        head_dim: the size of a head, even.
        qk_norm: whether each head of q and k is normalized before it is rotated (Qwen3).
        activation: "silu", "gelu" or "gelu_tanh", applied to the gate.
        eps: added to the mean squares.
        base: the longest wavelength over 2 pi (rope_theta).
        target: the name of the target to serve the sub-ops; None chooses by device.

    Call:
        ``op(x, residual, attn_norm_weight, qkv_weight, o_weight, mlp_norm_weight, gate_up_weight,
        down_weight, q_norm_weight=None, k_norm_weight=None, position_ids=None)``, each as in the
        two halves. Returns ``(y, residual_out)``, both ``[B, S, hidden_size]``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    qk_norm: bool
    activation: str
    eps: float
    base: float

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        qk_norm: bool = False,
        activation: str = "silu",
        eps: float = 1e-6,
        base: float = 10000.0,
        *,
        target: str | None = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.qk_norm = qk_norm
        self.activation = activation
        self.eps = eps
        self.base = base
        super().__init__(target=target)
        self.attention = self.sub_op(
            PreNormAttentionFwdOp,
            self.hidden_size,
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            qk_norm=self.qk_norm,
            eps=self.eps,
            base=self.base,
        )
        self.mlp = self.sub_op(GatedMLPFwdOp, self.hidden_size, self.activation, self.eps)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        attn_norm_weight: torch.Tensor,
        qkv_weight: torch.Tensor,
        o_weight: torch.Tensor,
        mlp_norm_weight: torch.Tensor,
        gate_up_weight: torch.Tensor,
        down_weight: torch.Tensor,
        q_norm_weight: torch.Tensor | None = None,
        k_norm_weight: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        attended, residual = self.attention(
            x,
            residual,
            attn_norm_weight,
            qkv_weight,
            o_weight,
            q_norm_weight,
            k_norm_weight,
            position_ids,
        )
        y, residual_out = self.mlp(attended, residual, mlp_norm_weight, gate_up_weight, down_weight)
        return y, residual_out
