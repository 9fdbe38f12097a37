"""What the composites are measured against: the same blocks of PyTorch's operators alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tileops.composite.ada_ln_zero_block import AdaLNZeroBlockFwdOp
from tileops.composite.gated_mlp import ACTIVATIONS, GatedMLPFwdOp
from tileops.composite.pre_norm_attention import PreNormAttentionFwdOp
from tileops.composite.transformer_block import TransformerBlockFwdOp
from tileops.core.bench.baselines import Baseline, by_cudnn, register_baseline

__all__: list[str] = []

Pair = tuple[torch.Tensor, torch.Tensor]


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    grouped = q.shape[2] != k.shape[2]
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(-2)


def _angles(op: Any, length: int, position_ids: torch.Tensor | None, device: torch.device) -> Pair:
    """cos and sin, float32, with an axis for the heads; the frequencies are a model's buffer."""
    frequencies: torch.Tensor | None = getattr(op, "_baseline", None)
    if frequencies is None:
        pairs = torch.arange(op.head_dim // 2, dtype=torch.float64, device=device)
        frequencies = op._baseline = op.base ** (-2 * pairs / op.head_dim)
    place = torch.arange(length, device=device) if position_ids is None else position_ids
    angle = place[..., None] * frequencies
    return angle.cos().float()[..., None, :], angle.sin().float()[..., None, :]


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _attention(
    op: Any,
    x: torch.Tensor,
    residual: torch.Tensor,
    norm_weight: torch.Tensor,
    qkv_weight: torch.Tensor,
    o_weight: torch.Tensor,
    q_norm_weight: torch.Tensor | None = None,
    k_norm_weight: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
) -> Pair:
    total = x + residual
    hidden = functional.rms_norm(total, (op.hidden_size,), norm_weight, op.eps)
    heads = functional.linear(hidden, qkv_weight).unflatten(-1, (-1, op.head_dim))
    q, k, v = heads.split((op.num_heads, op.num_kv_heads, op.num_kv_heads), -2)
    if op.qk_norm:
        q = functional.rms_norm(q, (op.head_dim,), q_norm_weight, op.eps)
        k = functional.rms_norm(k, (op.head_dim,), k_norm_weight, op.eps)
    cos, sin = _angles(op, x.shape[1], position_ids, x.device)
    q, k = (_rotated(t, cos, sin).to(x.dtype) for t in (q, k))
    return functional.linear(_attend(q, k, v, True), o_weight), total


def _mlp(
    op: Any,
    x: torch.Tensor,
    residual: torch.Tensor,
    norm_weight: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
) -> Pair:
    total = x + residual
    hidden = functional.rms_norm(total, (op.hidden_size,), norm_weight, op.eps)
    gate, up = functional.linear(hidden, gate_up_weight).chunk(2, -1)
    return functional.linear(ACTIVATIONS[op.activation](gate) * up, down_weight), total


def _block(
    op: TransformerBlockFwdOp,
    x: torch.Tensor,
    residual: torch.Tensor,
    attn_norm_weight: torch.Tensor,
    qkv_weight: torch.Tensor,
    o_weight: torch.Tensor,
    mlp_norm_weight: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    *more: torch.Tensor | None,
    **named: torch.Tensor | None,
) -> Pair:
    attended, total = _attention(
        op, x, residual, attn_norm_weight, qkv_weight, o_weight, *more, **named
    )
    return _mlp(op, attended, total, mlp_norm_weight, gate_up_weight, down_weight)


def _ada_block(
    op: AdaLNZeroBlockFwdOp, x: torch.Tensor, c: torch.Tensor, **w: torch.Tensor
) -> torch.Tensor:
    modulation = functional.linear(functional.silu(c), w["ada_weight"], w["ada_bias"])
    shift1, scale1, gate1, shift2, scale2, gate2 = modulation[:, None].chunk(6, -1)
    hidden = functional.layer_norm(x, (op.hidden_size,), eps=op.eps) * (1 + scale1) + shift1
    qkv = functional.linear(hidden, w["qkv_weight"], w["qkv_bias"])
    q, k, v = qkv.unflatten(-1, (3, op.num_heads, -1)).unbind(-3)
    total = x + gate1 * functional.linear(_attend(q, k, v, False), w["o_weight"], w["o_bias"])
    hidden = functional.layer_norm(total, (op.hidden_size,), eps=op.eps) * (1 + scale2) + shift2
    hidden = functional.linear(hidden, w["fc1_weight"], w["fc1_bias"])
    hidden = functional.gelu(hidden, approximate="tanh")
    return total + gate2 * functional.linear(hidden, w["fc2_weight"], w["fc2_bias"])


register_baseline(Baseline(PreNormAttentionFwdOp, _attention))
register_baseline(Baseline(GatedMLPFwdOp, _mlp))
register_baseline(Baseline(TransformerBlockFwdOp, _block))
register_baseline(Baseline(AdaLNZeroBlockFwdOp, _ada_block))
for _op, _function in (
    (PreNormAttentionFwdOp, _attention),
    (TransformerBlockFwdOp, _block),
    (AdaLNZeroBlockFwdOp, _ada_block),
):
    register_baseline(Baseline(_op, by_cudnn(_function), "cudnn", devices=("cuda",)))
