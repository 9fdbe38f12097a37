"""The positional family's compile cases; beside them, what its ops are measured against."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tileops.core import Op
from tileops.core.contract import CompileCase, register
from tileops.positional import baselines as _  # noqa: F401  # registers them
from tileops.positional.alibi import AlibiFwdOp
from tileops.positional.fused_qk_norm_rope import FusedQKNormRoPEFwdOp
from tileops.positional.rope import (
    RoPECacheFwdOp,
    RoPEFwdOp,
    RoPELlama31FwdOp,
    RoPELongRoPEFwdOp,
    RoPEMultimodalFwdOp,
    RoPEYaRNFwdOp,
)
from tileops.positional.sinusoidal import SinusoidalFwdOp

__all__: list[str] = []

Tensors = dict[str, torch.Tensor]


# -- the formulas in float64, with complex numbers where the references have real ones -------------


def _turn(x: torch.Tensor, factors: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x, [*B, S, H, D]: each pair as a complex number times its factor, [*B or none, S, pairs]."""
    rotary = 2 * factors.shape[-1]
    turned, rest = x[..., :rotary], x[..., rotary:]
    if interleaved:
        pairs = torch.view_as_complex(turned.unflatten(-1, (-1, 2)).contiguous())
    else:
        pairs = torch.complex(*turned.chunk(2, -1))
    turned = torch.view_as_real(pairs * factors[..., None, :])
    turned = turned.flatten(-2) if interleaved else turned.mT.flatten(-2)
    return torch.cat([turned, rest], -1)


def _turn_all(op: Any, q: torch.Tensor, k: torch.Tensor | None, factors: torch.Tensor) -> Any:
    turned = [_turn(x, factors, op.interleaved) for x in (q, k) if x is not None]
    return turned[0] if k is None else tuple(turned)


def _plain(op: Any, width: int) -> torch.Tensor:
    rotary = getattr(op, "rotary_dim", None) or width
    return torch.logspace(0, 2 / rotary - 1, rotary // 2, op.base, dtype=torch.float64)


def _llama31(op: RoPELlama31FwdOp, head_dim: int) -> torch.Tensor:
    f = _plain(op, head_dim)
    wavelength = 2 * math.pi / f
    original = op.original_max_position_embeddings
    share = (original / wavelength - op.low_freq_factor) / (
        op.high_freq_factor - op.low_freq_factor
    )
    mixed = (1 - share) * f / op.factor + share * f
    long, short = original / op.low_freq_factor, original / op.high_freq_factor
    return torch.where(wavelength > long, f / op.factor, torch.where(wavelength < short, f, mixed))


def _yarn(op: RoPEYaRNFwdOp, width: int) -> torch.Tensor:
    f = _plain(op, width)
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
    return _plain(op, width) / torch.tensor(by, dtype=torch.float64)


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
        return _turn_all(op, q, k, torch.polar(torch.full_like(angle, scale), angle))

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
    return _turn_all(op, q, k, torch.complex(*found.chunk(2, -1)))


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
    return _turn_all(op, q, k, torch.polar(torch.ones_like(angle), angle))


def _alibi_oracle(op: AlibiFwdOp) -> torch.Tensor:
    power = 2 ** math.floor(math.log2(op.num_heads))
    own = [2 ** (-8 * n / power) for n in range(1, power + 1)]
    between = [2 ** (-8 * n / (2 * power)) for n in range(1, 2 * power + 1, 2)]
    slopes = torch.tensor([*own, *between][: op.num_heads], dtype=torch.float64)
    place = torch.arange(op.seq_len, dtype=torch.float64)
    return -slopes[:, None, None] * torch.cdist(place[:, None], place[:, None])


def _sinusoidal_oracle(op: SinusoidalFwdOp) -> torch.Tensor:
    pairs = op.d_model // 2
    place = torch.arange(op.seq_len, dtype=torch.float64)
    angle = torch.outer(place, op.base ** (-torch.arange(pairs, dtype=torch.float64) / pairs))
    turned = torch.polar(torch.ones_like(angle), angle)
    table = torch.stack([turned.imag, turned.real], -1 if op.interleaved else -2)
    return table.flatten(-2)


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
        angle = place.double()[..., None] * _plain(op, op.head_dim).to(qkv.device)
        factors = torch.polar(torch.ones_like(angle), angle)
    else:
        factors = torch.complex(*cos_sin_cache[place.long()].chunk(2, -1))
    heads = qkv.unflatten(-1, (-1, op.head_dim))
    q, k, v = heads.split((op.num_heads_q, op.num_heads_k, op.num_heads_v), -2)
    parts = []
    for x, weight in ((q, q_weight), (k, k_weight)):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        x = x * (length**2 / op.head_dim + op.eps) ** -0.5 * weight
        parts.append(_turn(x, factors, op.interleaved))
    return torch.cat([*parts, v], -2).flatten(-2)


# -- cases -----------------------------------------------------------------------------------------


def _case(
    op: type[Op],
    label: str,
    params: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    oracle: Callable[..., Any],
    *,
    positions: tuple[int, int] = (0, 1),
    rows: str | None = None,
    **dtypes: torch.dtype,
) -> None:
    """Inputs of these shapes: normal numbers, and ``position_ids`` in the range ``positions``."""

    def inputs(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, shape in shapes.items():
            if name == "position_ids":
                drawn = torch.randint(*positions, shape, device=device, generator=generator)
                found[name] = drawn.to(dtypes.get(name, torch.int64))
            else:
                drawn = torch.randn(shape, device=device, generator=generator)
                found[name] = drawn.to(dtypes.get(name, dtype))
        return found

    register(CompileCase(op, label, params, inputs, oracle, rows=rows))


_Q, _K = (2, 5, 6, 32), (2, 5, 2, 32)

_case(RoPEFwdOp, "float32", {}, {"q": _Q, "k": _K}, torch.float32, _rope_oracle(_plain))
_case(
    RoPEFwdOp,
    "bfloat16-partial-interleaved-positions",
    {"rotary_dim": 12, "interleaved": True, "base": 1e6},
    {"q": _Q, "k": _K, "position_ids": (2, 5)},
    torch.bfloat16,
    _rope_oracle(_plain),
    positions=(0, 40000),
    rows="B",
)
_case(
    RoPEFwdOp,
    "float16-inplace-query",
    {"inplace": True},
    {"q": _Q, "position_ids": (5,)},
    torch.float16,
    _rope_oracle(_plain),
    positions=(-9, 9),
    rows="S",
    position_ids=torch.int32,
)
_case(
    RoPELlama31FwdOp,
    "bfloat16",
    {},
    {"q": (3, 4, 128), "k": (3, 2, 128), "position_ids": (3,)},
    torch.bfloat16,
    _rope_oracle(_llama31),
    positions=(0, 131072),
    rows="S",
)
_case(
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
_case(
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
_case(
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
_case(
    RoPECacheFwdOp,
    "float32-inplace-checked",
    {"inplace": True, "check_positions": True, "interleaved": True},
    {"q": _Q, "position_ids": (5,), "cos_sin_cache": (9, 32), "k": _K},
    torch.float32,
    _cache_oracle,
    positions=(0, 9),
    rows="S",
)
_case(
    RoPEMultimodalFwdOp,
    "bfloat16",
    {"mrope_section": (4, 6, 6), "base": 1e6},
    {"q": _Q, "position_ids": (3, 2, 5), "k": _K},
    torch.bfloat16,
    _multimodal_oracle,
    positions=(0, 5000),
    rows="B",
)
_case(
    RoPEMultimodalFwdOp,
    "float32-interleaved-sections",
    {"mrope_section": (6, 5, 5), "interleaved_sections": True},
    {"q": _Q, "position_ids": (3, 2, 5)},
    torch.float32,
    _multimodal_oracle,
    positions=(0, 5000),
    rows="B",
)

_HEADS = {"num_heads_q": 4, "num_heads_k": 2, "num_heads_v": 2, "head_dim": 32}
_QKV, _WEIGHTS = (2, 5, 256), {"q_weight": (32,), "k_weight": (32,)}

_case(
    FusedQKNormRoPEFwdOp,
    "bfloat16",
    {**_HEADS, "base": 1e6},
    {"qkv": _QKV, **_WEIGHTS},
    torch.bfloat16,
    _fused_oracle,
)
_case(
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
_case(
    FusedQKNormRoPEFwdOp,
    "float32-cache",
    {**_HEADS, "check_positions": True},
    {"qkv": _QKV, **_WEIGHTS, "position_ids": (5,), "cos_sin_cache": (9, 32)},
    torch.float32,
    _fused_oracle,
    positions=(0, 9),
    rows="S",
)

_case(AlibiFwdOp, "float32", {"seq_len": 37, "num_heads": 12}, {}, torch.float32, _alibi_oracle)
_case(
    SinusoidalFwdOp,
    "float16-halves",
    {"seq_len": 33, "d_model": 64, "interleaved": False, "dtype": torch.float16},
    {},
    torch.float16,
    _sinusoidal_oracle,
)
