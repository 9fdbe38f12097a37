"""The fused norm and rotation: compile cases."""

from __future__ import annotations

import torch

from tileops.positional.contracts.cases import case, plain, turn
from tileops.positional.fused_qk_norm_rope import FusedQKNormRoPEFwdOp

__all__: list[str] = []


def _fused_oracle(
    op: FusedQKNormRoPEFwdOp,
    *,
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    cos_sin_cache: torch.Tensor | None = None,
) -> torch.Tensor:
    counted = torch.arange(qkv.shape[-2], device=qkv.device)
    place = counted if position_ids is None else position_ids
    if cos_sin_cache is None:
        angle = place.double()[..., None] * plain(op, op.head_dim).to(qkv.device)
        factors = torch.polar(torch.ones_like(angle), angle)
    else:
        factors = torch.complex(*cos_sin_cache[place.long()].chunk(2, -1))
    heads = qkv.unflatten(-1, (-1, op.head_dim))
    q, k, v = heads.split((op.num_heads_q, op.num_heads_k, op.num_heads_v), -2)
    parts = []
    for x, weight in ((q, q_weight), (k, k_weight)):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x = x * (length**2 / op.head_dim + op.eps) ** -0.5 * weight
        parts.append(turn(x, factors, op.interleaved))
    return torch.cat([*parts, v], -2).flatten(-2)


_HEADS = {"num_heads_q": 4, "num_heads_k": 2, "num_heads_v": 2, "head_dim": 32}
_QKV, _WEIGHTS = (2, 5, 256), {"q_weight": (32,), "k_weight": (32,)}

case(
    FusedQKNormRoPEFwdOp,
    "bfloat16",
    {**_HEADS, "base": 1e6},
    {"qkv": _QKV, **_WEIGHTS},
    torch.bfloat16,
    _fused_oracle,
)
case(
    FusedQKNormRoPEFwdOp,
    "float16-inplace-partial-positions-weights-float32",
    {**_HEADS, "eps": 1e-5, "rotary_dim": 12, "interleaved": True, "inplace": True},
    {"qkv": _QKV, **_WEIGHTS, "position_ids": (2, 5)},
    torch.float16,
    _fused_oracle,
    positions=(0, 40000),
    rows="B",
    q_weight=torch.float32,
    k_weight=torch.float32,
)
case(
    FusedQKNormRoPEFwdOp,
    "float32-cache",
    {**_HEADS, "check_positions": True},
    {"qkv": _QKV, **_WEIGHTS, "position_ids": (5,), "cos_sin_cache": (9, 32)},
    torch.float32,
    _fused_oracle,
    positions=(0, 9),
    rows="S",
)
