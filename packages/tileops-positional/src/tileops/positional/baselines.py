"""What the positional ops are measured against: the same in PyTorch, as models write it.

Angles are worked out in float64 and products in float32, since results are held to the entries'
tolerances; models that do both in less give other results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tileops.core.bench.baselines import Baseline, register_baseline
from tileops.positional.alibi import AlibiFwdOp
from tileops.positional.alibi.reference import slopes
from tileops.positional.fused_qk_norm_rope import FusedQKNormRoPEFwdOp
from tileops.positional.rope import (
    RoPECacheFwdOp,
    RoPEFwdOp,
    RoPELlama31FwdOp,
    RoPELongRoPEFwdOp,
    RoPEMultimodalFwdOp,
    RoPEYaRNFwdOp,
)
from tileops.positional.rope.frequencies import default_rotation
from tileops.positional.sinusoidal import SinusoidalFwdOp

__all__: list[str] = []


def _alibi(op: AlibiFwdOp) -> torch.Tensor:
    place = torch.arange(op.seq_len, device=op.device, dtype=torch.float32)
    slope = slopes(op.num_heads, op.device)
    return ((place[None, :] - place[:, None]).abs() * -slope[:, None, None]).to(op.dtype)


def _sinusoidal(op: SinusoidalFwdOp) -> torch.Tensor:
    pair = torch.arange(op.d_model // 2, device=op.device, dtype=torch.float64)
    place = torch.arange(op.seq_len, device=op.device, dtype=torch.float64)
    angle = torch.outer(place, op.base ** (-2 * pair / op.d_model))
    if op.interleaved:
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(op.dtype)
    return torch.cat([angle.sin(), angle.cos()], -1).to(op.dtype)


class _Held(NamedTuple):
    """What a model works out once: its frequencies, on the device, and their scale and rows."""

    frequencies: torch.Tensor
    scale: float
    rows: torch.Tensor | None


def _held(op: Any, rotary_dim: int, device: torch.device) -> _Held:
    """Kept by the op, where a compiler finds it as a model's buffer."""
    held: _Held | None = getattr(op, "_baseline", None)
    if held is None:
        if isinstance(op, FusedQKNormRoPEFwdOp):
            rotation = default_rotation(rotary_dim, op.base)
        elif isinstance(op, RoPEMultimodalFwdOp):
            rotation = op.rotation()
        else:
            rotation = op.rotation(rotary_dim)
        frequencies = torch.tensor(rotation.frequencies, dtype=torch.float64, device=device)
        rows = None if rotation.rows is None else torch.tensor(rotation.rows, device=device)
        held = op._baseline = _Held(frequencies, rotation.scale, rows)
    return held


def _angles(
    held: _Held, length: int, position_ids: torch.Tensor | None, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of each pair, float32, with an axis for the heads."""
    place = torch.arange(length, device=device) if position_ids is None else position_ids
    place = place[..., None] if held.rows is None else place[held.rows].movedim(0, -1)
    angle = place * held.frequencies
    cos, sin = angle.cos() * held.scale, angle.sin() * held.scale
    return cos.float()[..., None, :], sin.float()[..., None, :]


def _rotated(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> torch.Tensor:
    rotary = 2 * cos.shape[-1]
    turned, rest = x[..., :rotary].float(), x[..., rotary:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        y = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        y = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([y.to(x.dtype), rest], -1) if rest.shape[-1] else y.to(x.dtype)


def _rotate(
    op: Any, q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
) -> Any:
    results = [_rotated(x, cos, sin, op.interleaved) for x in (q, k) if x is not None]
    if op.inplace:
        given = [x for x in (q, k) if x is not None]
        results = [x.copy_(y) for x, y in zip(given, results, strict=True)]
    return results[0] if k is None else tuple(results)


def _rope(
    op: Any,
    q: torch.Tensor,
    k: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
) -> Any:
    held = _held(op, op.rotary_dim or q.shape[-1], q.device)
    return _rotate(op, q, k, *_angles(held, q.shape[-3], position_ids, q.device))


def _rope_cache(
    op: RoPECacheFwdOp,
    q: torch.Tensor,
    position_ids: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    k: torch.Tensor | None = None,
) -> Any:
    cos, sin = cos_sin_cache[position_ids].float()[..., None, :].chunk(2, -1)
    return _rotate(op, q, k, cos, sin)


def _rope_multimodal(
    op: RoPEMultimodalFwdOp,
    q: torch.Tensor,
    position_ids: torch.Tensor,
    k: torch.Tensor | None = None,
) -> Any:
    held = _held(op, 2 * sum(op.mrope_section), q.device)
    return _rotate(op, q, k, *_angles(held, q.shape[-3], position_ids, q.device))


def _fused_qk_norm_rope(
    op: FusedQKNormRoPEFwdOp,
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    cos_sin_cache: torch.Tensor | None = None,
) -> torch.Tensor:
    if cos_sin_cache is None:
        held = _held(op, op.rotary_dim or op.head_dim, qkv.device)
        cos, sin = _angles(held, qkv.shape[-2], position_ids, qkv.device)
    else:
        counted = torch.arange(qkv.shape[-2], device=qkv.device)
        rows = cos_sin_cache[counted if position_ids is None else position_ids]
        cos, sin = rows.float()[..., None, :].chunk(2, -1)
    heads = qkv.unflatten(-1, (-1, op.head_dim))
    q, k, v = heads.split((op.num_heads_q, op.num_heads_k, op.num_heads_v), -2)
    parts = []
    for x, weight in ((q, q_weight), (k, k_weight)):
        normalized = torch.nn.functional.rms_norm(x.float(), (op.head_dim,), weight.float(), op.eps)
        parts.append(_rotated(normalized, cos, sin, op.interleaved).to(qkv.dtype))
    if not op.inplace:
        return torch.cat([*parts, v], -2).flatten(-2)
    q.copy_(parts[0])
    k.copy_(parts[1])
    return qkv


register_baseline(Baseline(AlibiFwdOp, _alibi))
register_baseline(Baseline(SinusoidalFwdOp, _sinusoidal))
register_baseline(Baseline(RoPEFwdOp, _rope))
register_baseline(Baseline(RoPELlama31FwdOp, _rope))
register_baseline(Baseline(RoPEYaRNFwdOp, _rope))
register_baseline(Baseline(RoPELongRoPEFwdOp, _rope))
register_baseline(Baseline(RoPECacheFwdOp, _rope_cache))
register_baseline(Baseline(RoPEMultimodalFwdOp, _rope_multimodal))
register_baseline(Baseline(FusedQKNormRoPEFwdOp, _fused_qk_norm_rope))
