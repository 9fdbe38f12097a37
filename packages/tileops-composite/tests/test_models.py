"""Whole layers beside the public definitions of models, in transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tileops.composite import TransformerBlockFwdOp

transformers = pytest.importorskip(
    "transformers", reason="compares with the definitions in transformers, which is not installed"
)

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 96, 6, 2, 32, 150


def model_of(kind: str, layers: int) -> Any:
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=layers,
        vocab_size=100,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        attn_implementation="eager",
    )
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Norms that are all ones, as a new model has, would hide where they stand.
            weight.copy_(torch.randn_like(weight) / (1 if "norm" in name else HIDDEN**0.5))
    return model


def weights_of(layer: Any) -> dict[str, torch.Tensor]:
    attention, mlp = layer.self_attn, layer.mlp
    found = {
        "attn_norm_weight": layer.input_layernorm.weight,
        "qkv_weight": torch.cat(
            [getattr(attention, f"{name}_proj").weight for name in ("q", "k", "v")]
        ),
        "o_weight": attention.o_proj.weight,
        "mlp_norm_weight": layer.post_attention_layernorm.weight,
        "gate_up_weight": torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        "down_weight": mlp.down_proj.weight,
    }
    if hasattr(attention, "q_norm"):
        found["q_norm_weight"] = attention.q_norm.weight
        found["k_norm_weight"] = attention.k_norm.weight
    return found


@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
@pytest.mark.parametrize("positions", [None, [3, 4, 5, 6, 7, 8, 9]])
def test_a_stack_of_blocks_is_the_models_layers(kind: str, positions: Any) -> None:
    """The residual goes from block to block, and the norm after the last is of the sum."""
    torch.manual_seed(5)
    model = model_of(kind, 3)
    tokens = torch.randint(0, 100, (2, 7))
    ids = None if positions is None else torch.tensor(positions)
    block = TransformerBlockFwdOp.shared(
        HIDDEN, HEADS, KV_HEADS, HEAD_DIM, qk_norm=kind == "Qwen3", eps=1e-5, base=5e5
    )
    with torch.no_grad():
        x = model.embed_tokens(tokens)
        residual = torch.zeros_like(x)
        for layer in model.layers:
            x, residual = block(x, residual, **weights_of(layer), position_ids=ids)
        found = model.norm(x + residual)
        expected = model(
            tokens, position_ids=None if ids is None else ids.expand(2, 7), use_cache=False
        ).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
