"""The composites' compile cases: formulas in float64, and what PyTorch does without the sub-ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.special import erf

from tileops.composite.ada_ln_zero_block import AdaLNZeroBlockFwdOp
from tileops.composite.gated_mlp import GatedMLPFwdOp
from tileops.composite.pre_norm_attention import PreNormAttentionFwdOp
from tileops.composite.transformer_block import TransformerBlockFwdOp
from tileops.core.contract import CompileCase, register

__all__: list[str] = []

ADD_NORM = "tileops::norm_fused_add_rms_norm_fwd"
ROPE = "tileops::positional_rope_fwd_without_k_out"
QK_NORM_ROPE = "tileops::positional_fused_qk_norm_rope_fwd"
ADA_NORM = "tileops::norm_ada_layer_norm_fwd"
ADA_NORM_ZERO = "tileops::norm_ada_layer_norm_zero_fwd"

Pair = tuple[torch.Tensor, torch.Tensor]


# -- the formulas in float64: complex rotations, attention row by row, means as sums ---------------


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * weight / ((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt()


def _layer_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return centred / ((centred * centred).sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt()


def _turn(x: torch.Tensor, place: torch.Tensor, base: float) -> torch.Tensor:
    """``[B, S, H, D]``, the halves of a head as one complex number each, times ``exp(i angle)``."""
    pairs = x.shape[-1] // 2
    power = torch.arange(pairs, dtype=torch.float64, device=x.device) / pairs
    angle = place.double()[..., None] * torch.exp(-math.log(base) * power)
    factor = torch.polar(torch.ones_like(angle), angle)[..., None, :]
    turned = torch.complex(x[..., :pairs], x[..., pairs:]) * factor
    return torch.cat([turned.real, turned.imag], -1)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """One head at a time, since all scores at once would not fit: ``[B, S, H * D]``."""
    heads, group = q.shape[2], q.shape[2] // k.shape[2]
    found = []
    for head in range(heads):
        keys, values = k[:, :, head // group], v[:, :, head // group]
        scores = torch.einsum("bsd,btd->bst", q[:, :, head], keys) / math.sqrt(q.shape[-1])
        weights = scores.exp() if q.shape[1] == 0 else (scores - scores.amax(-1, True)).exp()
        weights = weights.tril() if causal else weights
        found.append(torch.einsum("bst,btd->bsd", weights, values) / weights.sum(-1, True))
    return torch.cat(found, -1)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    share: torch.Tensor = (1 + erf(x / math.sqrt(2))) / 2
    return x * share


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


_ACTIVATIONS = {"silu": _silu, "gelu": _gelu, "gelu_tanh": _gelu_tanh}


def _pre_norm_attention(
    op: PreNormAttentionFwdOp | TransformerBlockFwdOp,
    *,
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
    packed = _rms_norm(total, norm_weight, op.eps) @ qkv_weight.mT
    heads = packed.reshape(*x.shape[:2], qkv_weight.shape[0] // op.head_dim, op.head_dim)
    q = heads[:, :, : op.num_heads]
    k = heads[:, :, op.num_heads : op.num_heads + op.num_kv_heads]
    v = heads[:, :, op.num_heads + op.num_kv_heads :]
    if q_norm_weight is not None and k_norm_weight is not None:
        q, k = _rms_norm(q, q_norm_weight, op.eps), _rms_norm(k, k_norm_weight, op.eps)
    counted = torch.arange(x.shape[1], device=x.device)
    place = counted if position_ids is None else position_ids
    q, k = _turn(q, place, op.base), _turn(k, place, op.base)
    return _attend(q, k, v, causal=True) @ o_weight.mT, total


def _gated_mlp(
    op: GatedMLPFwdOp | TransformerBlockFwdOp,
    *,
    x: torch.Tensor,
    residual: torch.Tensor,
    norm_weight: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
) -> Pair:
    total = x + residual
    hidden = _rms_norm(total, norm_weight, op.eps)
    size = down_weight.shape[1]
    gate, up = hidden @ gate_up_weight[:size].mT, hidden @ gate_up_weight[size:].mT
    return (_ACTIVATIONS[op.activation](gate) * up) @ down_weight.mT, total


def _transformer_block(
    op: TransformerBlockFwdOp,
    *,
    x: torch.Tensor,
    residual: torch.Tensor,
    attn_norm_weight: torch.Tensor,
    mlp_norm_weight: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    **attention: torch.Tensor,
) -> Pair:
    attended, total = _pre_norm_attention(
        op, x=x, residual=residual, norm_weight=attn_norm_weight, **attention
    )
    return _gated_mlp(
        op,
        x=attended,
        residual=total,
        norm_weight=mlp_norm_weight,
        gate_up_weight=gate_up_weight,
        down_weight=down_weight,
    )


def _ada_ln_zero_block(
    op: AdaLNZeroBlockFwdOp, *, x: torch.Tensor, c: torch.Tensor, **w: torch.Tensor
) -> torch.Tensor:
    n = op.hidden_size
    modulation = (_silu(c) @ w["ada_weight"].mT + w["ada_bias"])[:, None]
    shift1, scale1, gate1, shift2, scale2, gate2 = (
        modulation[..., i * n : (i + 1) * n] for i in range(6)
    )
    hidden = _layer_norm(x, op.eps) * (1 + scale1) + shift1
    q, k, v = (
        (
            hidden @ w["qkv_weight"][i * n : (i + 1) * n].mT + w["qkv_bias"][i * n : (i + 1) * n]
        ).reshape(*x.shape[:2], op.num_heads, n // op.num_heads)
        for i in range(3)
    )
    total = x + gate1 * (_attend(q, k, v, causal=False) @ w["o_weight"].mT + w["o_bias"])
    hidden = _layer_norm(total, op.eps) * (1 + scale2) + shift2
    hidden = _gelu_tanh(hidden @ w["fc1_weight"].mT + w["fc1_bias"])
    return total + gate2 * (hidden @ w["fc2_weight"].mT + w["fc2_bias"])


# -- inputs: activations of size one, weights that keep them there ---------------------------------

Inputs = Callable[[torch.device, torch.Generator], dict[str, Any]]


def _draw(
    dtype: torch.dtype, shapes: dict[str, tuple[int, ...]], positions: tuple[int, ...] | None = None
) -> Inputs:
    """Normal numbers: a matrix of weights over the root of its columns, a bias over ten."""

    def draw(device: torch.device, generator: torch.Generator) -> dict[str, Any]:
        found = {}
        for name, shape in shapes.items():
            drawn = torch.randn(shape, device=device, generator=generator)
            if name.endswith("_weight") and len(shape) == 2:
                drawn /= math.sqrt(shape[1])
            if name.endswith("_bias"):
                drawn /= 10
            found[name] = drawn.to(dtype)
        if positions is not None:
            drawn = torch.randint(0, 5000, positions, device=device, generator=generator)
            found["position_ids"] = drawn
        return found

    return draw


def _attention_shapes(
    batch: int, tokens: int, n: int, q: int, kv: int, d: int, norm: bool
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "x": (batch, tokens, n),
        "residual": (batch, tokens, n),
        "norm_weight": (n,),
        "qkv_weight": ((q + 2 * kv) * d, n),
        "o_weight": (n, q * d),
    }
    return shapes | ({"q_norm_weight": (d,), "k_norm_weight": (d,)} if norm else {})


def _mlp_shapes(n: int, i: int) -> dict[str, tuple[int, ...]]:
    return {"gate_up_weight": (2 * i, n), "down_weight": (n, i)}


_HALVES = (torch.float16, torch.bfloat16)
_WIDE, _SHARED, _EQUAL = (129, 6, 2, 18), (80, 4, 1, 32), (64, 3, 3, 16)
"""Hidden size, query heads, key-value heads, head size; grouped, one for all, equally many."""
_PADDED = 8
"""On a card inductor asks for the rows of a matmul in 16 bits whose sides it could pad to multiples
of this, and may compile again for more. So an MLP's sides are multiples there."""


def _attention_case(
    op: Any,
    label: str,
    dtype: torch.dtype,
    sizes: tuple[int, int, int, int],
    batch: int,
    tokens: int,
    positions: tuple[int, ...] | None = None,
    **params: Any,
) -> None:
    n, q, kv, d = sizes
    norm = bool(params.get("qk_norm"))
    shapes = _attention_shapes(batch, tokens, n, q, kv, d, norm)
    given = {"hidden_size": n, "num_heads": q, "num_kv_heads": kv, "head_dim": d, **params}
    nodes = [ADD_NORM, QK_NORM_ROPE if norm else ROPE]
    oracle: Callable[..., Any] = _pre_norm_attention
    if op is TransformerBlockFwdOp:
        attn = {"attn_norm_weight" if k == "norm_weight" else k: s for k, s in shapes.items()}
        wide = n + (_PADDED if dtype in _HALVES else 37)
        shapes = attn | {"mlp_norm_weight": (n,)} | _mlp_shapes(n, wide)
        nodes.append(ADD_NORM)
        oracle = _transformer_block
    inputs = _draw(dtype, shapes, positions)
    register(CompileCase(op, label, given, inputs, oracle, nodes=nodes, rows="B"))


for _op in (PreNormAttentionFwdOp, TransformerBlockFwdOp):
    _attention_case(
        _op, "float32-qk-norm-positions", torch.float32, _SHARED, 2, 7, (2, 7), qk_norm=True
    )
    _attention_case(_op, "bfloat16-positions", torch.bfloat16, _EQUAL, 2, 9, (9,), eps=1e-5)
_attention_case(PreNormAttentionFwdOp, "float32-grouped", torch.float32, _WIDE, 3, 5, base=5e5)
_attention_case(PreNormAttentionFwdOp, "float16-qk-norm", torch.float16, _WIDE, 2, 6, qk_norm=True)

for _dtype, _activation in zip((torch.float32, *_HALVES), _ACTIVATIONS, strict=True):
    _n = 96 if _dtype in _HALVES else 129
    register(
        CompileCase(
            GatedMLPFwdOp,
            f"{str(_dtype).removeprefix('torch.')}-{_activation}",
            {"hidden_size": _n, "activation": _activation, "eps": 1e-5},
            _draw(
                _dtype,
                {"x": (3, 5, _n), "residual": (3, 5, _n), "norm_weight": (_n,)}
                | _mlp_shapes(_n, 11 * _PADDED if _dtype in _HALVES else 83),
            ),
            _gated_mlp,
            nodes=[ADD_NORM],
            rows="B",
        )
    )

for _dtype, _n, _heads in ((torch.float32, 75, 5), (torch.bfloat16, 96, 4), (torch.float16, 64, 1)):
    register(
        CompileCase(
            AdaLNZeroBlockFwdOp,
            f"{str(_dtype).removeprefix('torch.')}-{_heads}-heads",
            {"hidden_size": _n, "num_heads": _heads},
            _draw(
                _dtype,
                {
                    # See _PADDED.
                    "x": (3, 7, _n),
                    "c": (3, _n),
                    "ada_weight": (6 * _n, _n),
                    "ada_bias": (6 * _n,),
                    "qkv_weight": (3 * _n, _n),
                    "qkv_bias": (3 * _n,),
                    "o_weight": (_n, _n),
                    "o_bias": (_n,),
                    "fc1_weight": (2 * _n + _PADDED, _n),
                    "fc1_bias": (2 * _n + _PADDED,),
                    "fc2_weight": (_n, 2 * _n + _PADDED),
                    "fc2_bias": (_n,),
                },
            ),
            _ada_ln_zero_block,
            nodes=[ADA_NORM, ADA_NORM_ZERO],
            rows="B",
        )
    )
