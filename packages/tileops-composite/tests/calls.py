"""A small call of each composite, and the sub-ops' nodes that its graph holds."""

from __future__ import annotations

from typing import Any

import torch

from tileops.composite import contracts
from tileops.core import Op
from tileops.core.contract import CompileCase, cases

CASES = {case.name: case for case in cases("composite")}
"""The registered compile cases, whose oracles are formulas in float64."""

SMALL = {
    "AdaLNZeroBlockFwdOp": "AdaLNZeroBlockFwdOp-float32-5-heads",
    "GatedMLPFwdOp": "GatedMLPFwdOp-float32-silu",
    "PreNormAttentionFwdOp": "PreNormAttentionFwdOp-float32-grouped",
    "PreNormAttentionFwdOp with qk_norm": "PreNormAttentionFwdOp-float32-qk-norm-positions",
    "TransformerBlockFwdOp": "TransformerBlockFwdOp-bfloat16-positions",
    "TransformerBlockFwdOp with qk_norm": "TransformerBlockFwdOp-float32-qk-norm-positions",
}
"""A case of each composite, and of each of its shapes."""


def drawn(case: CompileCase, seed: int = 0) -> dict[str, Any]:
    """The arguments of a call, from a generator of their own."""
    return case.inputs(torch.device("cpu"), torch.Generator().manual_seed(seed))


def results(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def exact(case: CompileCase, op: Op, arguments: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The formula in float64."""
    given = {
        name: value.double() if value.is_floating_point() else value
        for name, value in arguments.items()
    }
    return results(case.oracle(op, **given))


__all__ = ["CASES", "SMALL", "contracts", "drawn", "exact", "results"]
