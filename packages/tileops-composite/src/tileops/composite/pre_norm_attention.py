"""PreNormAttentionFwdOp: add and norm, projections, rotary embedding, causal attention."""

from __future__ import annotations

import torch
from torch.nn import functional

from tileops.composite.attention import attend
from tileops.core import Op
from tileops.norm import FusedAddRMSNormFwdOp
from tileops.positional import FusedQKNormRoPEFwdOp, RoPEFwdOp

__all__ = ["PreNormAttentionFwdOp"]


class PreNormAttentionFwdOp(Op):
    """The attention half of a pre-norm transformer block, as of Llama or, with qk_norm, of Qwen3.

    ``residual_out = x + residual``; ``rmsnorm(residual_out) qkv_weight.T`` are the queries, keys
    and values of a token; ``y = attention(rope(q), rope(k), v) o_weight.T``. With ``qk_norm`` each
    head of q and k is normalized before it is rotated. Attention is causal by the order of the
    tokens, whatever their positions, and keeps nothing: a whole prompt at once. The sum is rounded
    to ``x``'s dtype and then normalized, as by :class:`~tileops.norm.FusedAddRMSNormFwdOp`.

    A composite: in a compiled graph the addition with its norm is one node, the rotation (with
    ``qk_norm`` the norms of q and k too) is another, and the rest is PyTorch's, attention too.

    Args:
        hidden_size: the size of a token's vector.
        num_heads: query heads.
        num_kv_heads: key-value heads, each for equally many query heads.
        head_dim: the size of a head, even.
        qk_norm: whether each head of q and k is normalized before it is rotated (Qwen3).
        eps: added to the mean squares.
        base: the longest wavelength over 2 pi (rope_theta).
        target: the name of the target to serve the sub-ops; None chooses by device.

    Call:
        ``op(x, residual, norm_weight, qkv_weight, o_weight, q_norm_weight=None, k_norm_weight=None,
        position_ids=None)``, floating tensors all of one dtype, float16, bfloat16 or float32.
        ``x``, what the layer before gave, and ``residual``, the sum of those before it, are
        ``[B, S, hidden_size]``; ``norm_weight`` is ``[hidden_size]``; ``qkv_weight`` is
        ``[(num_heads + 2 * num_kv_heads) * head_dim, hidden_size]``, the rows of q, of k, of v;
        ``o_weight`` is ``[hidden_size, num_heads * head_dim]``; ``q_norm_weight`` and
        ``k_norm_weight``, with ``qk_norm`` and only then, are ``[head_dim]``; ``position_ids`` are
        int64 or int32, ``[S]`` or ``[B, S]``, and None counts from 0. Returns ``(y,
        residual_out)``, both ``[B, S, hidden_size]``.

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
    eps: float
    base: float

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        qk_norm: bool = False,
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
        self.eps = eps
        self.base = base
        super().__init__(target=target)
        # A bool that no trace makes a symbol of, as it does of head counts with dynamic=True.
        self._grouped = self.num_heads != self.num_kv_heads
        self.norm = self.sub_op(FusedAddRMSNormFwdOp, self.hidden_size, self.eps)
        self.rope: Op
        if self.qk_norm:
            self.rope = self.sub_op(
                FusedQKNormRoPEFwdOp,
                self.num_heads,
                self.num_kv_heads,
                self.num_kv_heads,
                self.head_dim,
                eps=self.eps,
                base=self.base,
            )
        else:
            self.rope = self.sub_op(RoPEFwdOp, base=self.base)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        norm_weight: torch.Tensor,
        qkv_weight: torch.Tensor,
        o_weight: torch.Tensor,
        q_norm_weight: torch.Tensor | None = None,
        k_norm_weight: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, residual_out = self.norm(x, residual, norm_weight)
        by_head, counts = (-1, self.head_dim), (self.num_heads, self.num_kv_heads)
        if self.qk_norm:
            qkv = functional.linear(hidden, qkv_weight)
            qkv = self.rope(qkv, q_norm_weight, k_norm_weight, position_ids)
            q, k, v = qkv.unflatten(-1, by_head).split((*counts, self.num_kv_heads), -2)
        else:
            # Two products, so that what is rotated is contiguous: of one with v the node would
            # copy q and k first. Every head is rotated in the same way, a key's as a query's.
            rows = sum(counts) * self.head_dim, self.num_kv_heads * self.head_dim
            qk, v = (
                functional.linear(hidden, weight).unflatten(-1, by_head)
                for weight in qkv_weight.split(rows)
            )
            q, k = self.rope(qk, None, position_ids).split(counts, -2)
        attended = attend(q, k, v, causal=True, grouped=self._grouped)
        return functional.linear(attended, o_weight), residual_out
