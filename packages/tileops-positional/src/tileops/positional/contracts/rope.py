"""The rotary ops: compile cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tileops.positional.contracts.cases import case, plain, turn_all
from tileops.positional.rope import (
    RoPECacheFwdOp,
    RoPEFwdOp,
    RoPELlama31FwdOp,
    RoPELongRoPEFwdOp,
    RoPEMultimodalFwdOp,
    RoPEYaRNFwdOp,
)

__all__: list[str] = []


def _llama31(op: RoPELlama31FwdOp, head_dim: int) -> torch.Tensor:
    f = plain(op, head_dim)
    wavelength = 2 * math.pi / f
    original = op.original_max_position_embeddings
    share = (original / wavelength - op.low_freq_factor) / (
        op.high_freq_factor - op.low_freq_factor
    )
    mixed = (1 - share) * f / op.factor + share * f
    long, short = original / op.low_freq_factor, original / op.high_freq_factor
    return torch.where(wavelength > long, f / op.factor, torch.where(wavelength < short, f, mixed))


def _yarn(op: RoPEYaRNFwdOp, width: int) -> torch.Tensor:
    f = plain(op, width)
    rotary = 2 * f.numel()
    original = op.original_max_position_embeddings
    ends = [
        rotary * math.log(original / (2 * math.pi * beta)) / (2 * math.log(op.base))
        for beta in (op.beta_fast, op.beta_slow)
    ]
    if op.truncate:
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], rotary - 1)
    slowed = ((torch.arange(rotary // 2).double() - low) / (high - low)).clamp(0, 1)
    return f * (1 - slowed) + f / op.factor * slowed


def _longrope(op: RoPELongRoPEFwdOp, width: int) -> torch.Tensor:
    by = op.long_factor if op.long_context else op.short_factor
    return plain(op, width) / torch.tensor(by, dtype=torch.float64)


def _rope_oracle(frequencies: Callable[[Any, int], torch.Tensor], scale: float = 1.0) -> Any:
    def oracle(
        op: Any,
        *,
        q: torch.Tensor,
        k: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> Any:
        counted = torch.arange(q.shape[-3], device=q.device)
        place = counted if position_ids is None else position_ids
        angle = place.double()[..., None] * frequencies(op, q.shape[-1]).to(q.device)
        return turn_all(op, q, k, torch.polar(torch.full_like(angle, scale), angle))

    return oracle


def _cache_oracle(
    op: RoPECacheFwdOp,
    *,
    q: torch.Tensor,
    position_ids: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    k: torch.Tensor | None = None,
) -> Any:
    # A row of NaN at the end, for every position that is out of the table.
    rows = torch.cat([cos_sin_cache, cos_sin_cache.new_full((1, cos_sin_cache.shape[1]), math.nan)])
    inside = (position_ids >= 0) & (position_ids < len(cos_sin_cache))
    found = rows[torch.where(inside, position_ids.long(), len(cos_sin_cache))]
    return turn_all(op, q, k, torch.complex(*found.chunk(2, -1)))


def _multimodal_oracle(
    op: RoPEMultimodalFwdOp,
    *,
    q: torch.Tensor,
    position_ids: torch.Tensor,
    k: torch.Tensor | None = None,
) -> Any:
    time, height, width = op.mrope_section
    pairs = sum(op.mrope_section)
    f = op.base ** (-torch.arange(pairs, dtype=torch.float64, device=q.device) / pairs)
    angles = position_ids.double()[..., None] * f
    parts = []
    for i in range(pairs):
        if op.interleaved_sections:
            row = i % 3 if i < 3 * (0, height, width)[i % 3] else 0
        else:
            row = int(i >= time) + int(i >= time + height)
        parts.append(angles[row, ..., i])
    angle = torch.stack(parts, -1)
    return turn_all(op, q, k, torch.polar(torch.ones_like(angle), angle))


_Q, _K = (2, 5, 6, 32), (2, 5, 2, 32)

case(RoPEFwdOp, "float32", {}, {"q": _Q, "k": _K}, torch.float32, _rope_oracle(plain))
case(
    RoPEFwdOp,
    "bfloat16-partial-interleaved-positions",
    {"rotary_dim": 12, "interleaved": True, "base": 1e6},
    {"q": _Q, "k": _K, "position_ids": (2, 5)},
    torch.bfloat16,
    _rope_oracle(plain),
    positions=(0, 40000),
    rows="B",
)
case(
    RoPEFwdOp,
    "float16-inplace-query",
    {"inplace": True},
    {"q": _Q, "position_ids": (5,)},
    torch.float16,
    _rope_oracle(plain),
    positions=(-9, 9),
    rows="S",
    position_ids=torch.int32,
)
case(
    RoPELlama31FwdOp,
    "bfloat16",
    {},
    {"q": (3, 4, 128), "k": (3, 2, 128), "position_ids": (3,)},
    torch.bfloat16,
    _rope_oracle(_llama31),
    positions=(0, 131072),
    rows="S",
)
case(
    RoPEYaRNFwdOp,
    "float32",
    {"factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False, "base": 150000.0},
    {"q": (3, 4, 64), "k": (3, 2, 64), "position_ids": (3,)},
    torch.float32,
    _rope_oracle(_yarn, 0.1 * math.log(32) + 1),
    positions=(0, 131072),
    rows="S",
)
_FACTORS = [1 + i / 8 for i in range(16)]
case(
    RoPELongRoPEFwdOp,
    "float16",
    {
        "short_factor": [1.0] * 16,
        "long_factor": _FACTORS,
        "original_max_position_embeddings": 4096,
        "factor": 32.0,
        "long_context": True,
    },
    {"q": _Q, "k": _K, "position_ids": (2, 5)},
    torch.float16,
    _rope_oracle(_longrope, math.sqrt(1 + math.log(32) / math.log(4096))),
    positions=(0, 131072),
    rows="B",
)
case(
    RoPECacheFwdOp,
    "bfloat16",
    {},
    {"q": _Q, "position_ids": (2, 5), "cos_sin_cache": (9, 16), "k": _K},
    torch.bfloat16,
    _cache_oracle,
    positions=(0, 9),
    rows="B",
    cos_sin_cache=torch.float32,
)
case(
    RoPECacheFwdOp,
    "float32-inplace-checked",
    {"inplace": True, "check_positions": True, "interleaved": True},
    {"q": _Q, "position_ids": (5,), "cos_sin_cache": (9, 32), "k": _K},
    torch.float32,
    _cache_oracle,
    positions=(0, 9),
    rows="S",
)
case(
    RoPEMultimodalFwdOp,
    "bfloat16",
    {"mrope_section": (4, 6, 6), "base": 1e6},
    {"q": _Q, "position_ids": (3, 2, 5), "k": _K},
    torch.bfloat16,
    _multimodal_oracle,
    positions=(0, 5000),
    rows="B",
)
case(
    RoPEMultimodalFwdOp,
    "float32-interleaved-sections",
    {"mrope_section": (6, 5, 5), "interleaved_sections": True},
    {"q": _Q, "position_ids": (3, 2, 5)},
    torch.float32,
    _multimodal_oracle,
    positions=(0, 5000),
    rows="B",
)
