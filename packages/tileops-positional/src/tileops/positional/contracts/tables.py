"""The ALiBi and sinusoidal tables: compile cases."""

from __future__ import annotations

import math

import torch

from tileops.positional.alibi import AlibiFwdOp
from tileops.positional.contracts.cases import case
from tileops.positional.sinusoidal import SinusoidalFwdOp

__all__: list[str] = []


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


case(AlibiFwdOp, "float32", {"seq_len": 37, "num_heads": 12}, {}, torch.float32, _alibi_oracle)
case(
    SinusoidalFwdOp,
    "float16-halves",
    {"seq_len": 33, "d_model": 64, "interleaved": False, "dtype": torch.float16},
    {},
    torch.float16,
    _sinusoidal_oracle,
)
