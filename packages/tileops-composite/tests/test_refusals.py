"""What the composites refuse, in the words of their own entries."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from calls import CASES, drawn

from tileops.composite import (
    AdaLNZeroBlockFwdOp,
    GatedMLPFwdOp,
    PreNormAttentionFwdOp,
    TransformerBlockFwdOp,
)
from tileops.core.errors import ArgumentError, ParamError, TargetError

PARAMS = {
    "no heads that share": (
        lambda: PreNormAttentionFwdOp(64, 6, 4, 16),
        "PreNormAttentionFwdOp: num_heads is 6 and num_kv_heads is 4; both are above 0, and the "
        "first is a multiple of the second",
    ),
    "an odd head": (
        lambda: TransformerBlockFwdOp(64, 4, 4, 15),
        "TransformerBlockFwdOp: head_dim is 15; it is even and above 0",
    ),
    "no width": (
        lambda: GatedMLPFwdOp(0),
        "GatedMLPFwdOp: hidden_size is 0; it is at least 1",
    ),
    "another activation": (
        lambda: GatedMLPFwdOp(64, "relu"),
        "GatedMLPFwdOp: activation is 'relu', but the signature needs one of 'silu', 'gelu', "
        "'gelu_tanh'",
    ),
    "heads that do not split": (
        lambda: AdaLNZeroBlockFwdOp(64, 5),
        "AdaLNZeroBlockFwdOp: hidden_size is 64 and num_heads is 5; the first is a multiple of the "
        "second",
    ),
    "no finite base": (
        lambda: TransformerBlockFwdOp(64, 4, 4, 16, base=float("inf")),
        "TransformerBlockFwdOp: base is inf; it is above 1e-270 and below 1e270, so that each "
        "frequency is a finite number",
    ),
    "a negative eps": (
        lambda: AdaLNZeroBlockFwdOp(64, 4, -1.0),
        "AdaLNZeroBlockFwdOp: eps is -1.0; it is at least 0",
    ),
}


@pytest.mark.parametrize("what", PARAMS)
def test_params(what: str) -> None:
    make, says = PARAMS[what]
    with pytest.raises(ParamError) as error:
        make()
    assert str(error.value) == says


ARGUMENTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a weight of other columns": (
        "GatedMLPFwdOp-float32-silu",
        {"down_weight": torch.randn(129, 82)},
        "GatedMLPFwdOp: down_weight has shape [129, 82], but the signature needs [hidden_size, G "
        "// 2] = [129, 83]",
    ),
    "a gate without its match": (
        "GatedMLPFwdOp-float32-silu",
        {"gate_up_weight": torch.randn(167, 129)},
        "GatedMLPFwdOp: gate_up_weight has 167 rows; the gate and what it gates have equally many",
    ),
    "a residual of another dtype": (
        "PreNormAttentionFwdOp-float32-grouped",
        {"residual": torch.randn(3, 5, 129).bfloat16()},
        "PreNormAttentionFwdOp: residual has dtype bfloat16, but the signature needs T = float32",
    ),
    "norms of heads that are not normalized": (
        "PreNormAttentionFwdOp-float32-grouped",
        {"q_norm_weight": torch.randn(18)},
        "PreNormAttentionFwdOp: q_norm_weight is given, and qk_norm is False; leave it out, or "
        "make the op with qk_norm=True",
    ),
    "no norms of heads that are": (
        "TransformerBlockFwdOp-float32-qk-norm-positions",
        {"k_norm_weight": None},
        "TransformerBlockFwdOp: k_norm_weight is None, but the signature needs a Tensor where "
        "qk_norm",
    ),
    "positions of another length": (
        "TransformerBlockFwdOp-float32-qk-norm-positions",
        {"position_ids": torch.arange(6)},
        "TransformerBlockFwdOp: position_ids has shape [6], but the signature needs [S] = [7]",
    ),
    "positions of one sequence, with an axis for it": (
        "TransformerBlockFwdOp-float32-qk-norm-positions",
        {"position_ids": torch.arange(7)[None]},
        "TransformerBlockFwdOp: position_ids has shape [1, 7], but the signature needs [B, S] = "
        "[2, 7], or [S] for all of B",
    ),
    "a sample without its condition": (
        "AdaLNZeroBlockFwdOp-float32-5-heads",
        {"c": torch.randn(2, 75)},
        "AdaLNZeroBlockFwdOp: c has shape [2, 75], but the signature needs [B, hidden_size] = "
        "[3, 75]",
    ),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_arguments(what: str) -> None:
    name, wrong, says = ARGUMENTS[what]
    case = CASES[name]
    given = {**drawn(case), **wrong}
    op = case.make()
    with pytest.raises(ArgumentError) as error:
        op(**given)
    assert str(error.value) == says
    with pytest.raises(torch._dynamo.exc.Unsupported) as traced:
        torch.compile(op, backend="aot_eager", fullgraph=True)(**given)
    assert says in str(traced.value)


def test_a_target_that_cannot_serve_is_named_by_the_sub_op() -> None:
    case = CASES["GatedMLPFwdOp-float32-silu"]
    with pytest.raises(TargetError, match="FusedAddRMSNormFwdOp: the target 'tilelang' serves"):
        case.make(target="tilelang")(**drawn(case))


@pytest.mark.parametrize("build", [GatedMLPFwdOp, GatedMLPFwdOp.shared], ids=["new", "shared"])
def test_one_that_is_made_inside_compiled_code(build: Any) -> None:
    """Dynamo said that it cannot trace the builtin operator eval."""
    case = CASES["GatedMLPFwdOp-float32-silu"]
    given, op = drawn(case), case.make()

    def call(**given: torch.Tensor) -> Any:
        return build(**op._params)(**given)

    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="an op is made inside compiled code"):
        torch.compile(call, backend="eager", fullgraph=True)(**given)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(call, backend="eager")(**given), op(**given))
