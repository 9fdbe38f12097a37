"""The frequencies and rotations beside the public definitions of models, in transformers.

These compute in float32 what is float64 here. A frequency is then off by the power, a few products
and a division, and its exponent, rounded to 24 bits, is off by up to ``ln(base) * 2**-24``: 2**-20
covers bases up to 1e7.
"""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from tileops.positional import (
    RoPEFwdOp,
    RoPELlama31FwdOp,
    RoPELongRoPEFwdOp,
    RoPEMultimodalFwdOp,
    RoPEYaRNFwdOp,
)

transformers = pytest.importorskip(
    "transformers", reason="compares with the definitions in transformers, which is not installed"
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402


def theirs(config: Any, **parameters: Any) -> tuple[torch.Tensor, float]:
    config.rope_parameters = parameters
    function = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    seq_len = parameters.pop("seq_len", None)
    return function(config, torch.device("cpu"), seq_len=seq_len)


def llama(head_dim: int, **settings: Any) -> Any:
    return transformers.LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, **settings
    )


def assert_same(op: Any, rotary_dim: int, expected: tuple[torch.Tensor, float]) -> None:
    rotation = op.rotation(rotary_dim)
    frequencies, scale = expected
    torch.testing.assert_close(
        torch.tensor(rotation.frequencies).double(), frequencies.double(), rtol=2**-20, atol=0
    )
    assert rotation.scale == pytest.approx(scale, rel=1e-12)


LLAMA31 = [
    (128, 5e5, 8.0, 1.0, 4.0, 8192),  # Llama 3.1 8B
    (64, 5e5, 32.0, 1.0, 4.0, 8192),  # Llama 3.2 1B
    (96, 1e4, 3.0, 0.5, 20.0, 777),
    (128, 1e6, 1.0, 1.0, 2.0, 8192),
]


@pytest.mark.parametrize(("dim", "base", "factor", "low", "high", "original"), LLAMA31)
def test_llama31(
    dim: int, base: float, factor: float, low: float, high: float, original: int
) -> None:
    expected = theirs(
        llama(dim, max_position_embeddings=131072),
        rope_type="llama3",
        rope_theta=base,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=original,
    )
    assert_same(RoPELlama31FwdOp(factor, low, high, original, base=base), dim, expected)


YARN = [
    (128, {"rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}),
    (
        64,
        {
            "rope_theta": 1e4,
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    ),
    (
        64,
        {
            "rope_theta": 150000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
    ),
    (
        96,
        {
            "rope_theta": 1e4,
            "factor": 16.0,
            "original_max_position_embeddings": 2048,
            "beta_fast": 20.0,
            "beta_slow": 2.5,
            "mscale": 0.7,
            "mscale_all_dim": 1.3,
        },
    ),
    # A zero is as good as none, and one of the two alone is not read.
    *(
        (
            64,
            {
                "rope_theta": 1e4,
                "factor": 40.0,
                "original_max_position_embeddings": 4096,
                "mscale": mscale,
                "mscale_all_dim": all_dim,
            },
        )
        for mscale, all_dim in ((0.7, 0.0), (0.0, 0.7), (0.7, None), (None, 1.3))
    ),
    (
        80,
        {
            "rope_theta": 1e4,
            "factor": 1.0,
            "original_max_position_embeddings": 100,
            "attention_factor": 0.9,
        },
    ),
    # A ramp that begins and ends at the same pair, and one that is clamped at both ends.
    (8, {"rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 6}),
    (8, {"rope_theta": 100.0, "factor": 8.0, "original_max_position_embeddings": 10**7}),
]


@pytest.mark.parametrize(("dim", "parameters"), YARN)
def test_yarn(dim: int, parameters: dict[str, Any]) -> None:
    config = llama(dim, max_position_embeddings=131072)
    expected = theirs(config, rope_type="yarn", **parameters)
    ours = dict(parameters)
    op = RoPEYaRNFwdOp(base=ours.pop("rope_theta"), **ours)
    assert_same(op, dim, expected)


@pytest.mark.parametrize("long_context", [False, True])
@pytest.mark.parametrize("attention_factor", [None, 1.25])
@pytest.mark.parametrize("longest", [131072, 4096])
def test_longrope(long_context: bool, attention_factor: float | None, longest: int) -> None:
    short, long = [1 + i / 40 for i in range(48)], [1 + 1.3 * i for i in range(48)]
    config = llama(96, max_position_embeddings=longest)
    expected = theirs(
        config,
        rope_type="longrope",
        rope_theta=1e4,
        short_factor=short,
        long_factor=long,
        original_max_position_embeddings=4096,
        attention_factor=attention_factor,
        factor=None,
        seq_len=4097 if long_context else 4096,
    )
    op = RoPELongRoPEFwdOp(short, long, 4096, longest / 4096, attention_factor, long_context)
    assert_same(op, 96, expected)


def close(found: torch.Tensor, expected: torch.Tensor, furthest: int) -> None:
    """Their angle is off by up to 2**-22 of itself (the frequency, the product), so of positions up
    to ``furthest`` by that many times as much, and a pair of numbers up to 6 moves by twelve times
    that; float32 arithmetic adds 1e-5."""
    torch.testing.assert_close(found, expected, rtol=0, atol=12 * furthest * 2**-20 + 1e-5)


def test_a_models_rotation() -> None:
    """Llama's rotary embedding and its function for q and k, which are [B, H, S, D] there."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = llama(64, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    ids = torch.randint(0, 100, (2, 7))
    q, k = torch.randn(2, 7, 4, 64), torch.randn(2, 7, 2, 64)
    expected = apply_rotary_pos_emb(
        q.transpose(1, 2), k.transpose(1, 2), *LlamaRotaryEmbedding(config)(q, ids)
    )
    for found, wanted in zip(RoPEFwdOp(base=5e5)(q, k, ids), expected, strict=True):
        close(found, wanted.transpose(1, 2), 100)


def test_a_models_partial_rotation() -> None:
    from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb

    q, k = torch.randn(2, 7, 4, 96), torch.randn(2, 7, 4, 96)
    frequencies = 1e4 ** (-torch.arange(0, 24, 2).float() / 24)
    angle = torch.arange(7).float()[:, None] * frequencies
    cos, sin = (f(angle).repeat(1, 2)[None] for f in (torch.cos, torch.sin))
    expected = apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    for found, wanted in zip(RoPEFwdOp(24)(q, k), expected, strict=True):
        close(found, wanted.transpose(1, 2), 7)


def test_a_models_interleaved_rotation() -> None:
    from transformers.models.gptj import modeling_gptj as gptj

    q = torch.randn(2, 7, 4, 64)
    sin, cos = gptj.create_sinusoidal_positions(7, 64).chunk(2, -1)
    expected = gptj.apply_rotary_pos_emb(q, sin[None], cos[None])
    close(RoPEFwdOp(interleaved=True)(q), expected, 7)


MULTIMODAL = {
    "qwen2_vl": ("Qwen2VLRotaryEmbedding", [4, 6, 6], {}),
    "qwen3_vl": ("Qwen3VLTextRotaryEmbedding", [6, 5, 5], {"interleaved_sections": True}),
    "glm4v": ("Glm4vTextRotaryEmbedding", [4, 6, 6], {"interleaved": True}),
}


@pytest.mark.parametrize("model", MULTIMODAL)
def test_a_multimodal_models_rotation(model: str) -> None:
    name, sections, settings = MULTIMODAL[model]
    module = __import__(
        f"transformers.models.{model}.modeling_{model}", fromlist=["apply_rotary_pos_emb"]
    )
    config = types.SimpleNamespace(
        max_position_embeddings=4096,
        hidden_size=128,
        num_attention_heads=4,
        head_dim=32,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections},
    )
    ids = torch.randint(0, 100, (3, 2, 7))
    q, k = torch.randn(2, 7, 4, 32), torch.randn(2, 7, 2, 32)
    cos, sin = getattr(module, name)(config)(q, ids)
    expected = module.apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    found = RoPEMultimodalFwdOp(sections, 1e6, **settings)(q, ids, k)
    for ours, wanted in zip(found, expected, strict=True):
        close(ours, wanted.transpose(1, 2), 100)
