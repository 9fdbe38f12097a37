"""What the rotary ops refuse, and in which words."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from tileops.core.errors import ArgumentError, ParamError
from tileops.positional import (
    FusedQKNormRoPEFwdOp,
    RoPECacheFwdOp,
    RoPEFwdOp,
    RoPELlama31FwdOp,
    RoPELongRoPEFwdOp,
    RoPEMultimodalFwdOp,
    RoPEYaRNFwdOp,
)

LONG = {"original_max_position_embeddings": 4096, "factor": 32.0}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: RoPEFwdOp(7),
            "RoPEFwdOp: rotary_dim is 7; it is even and above 0",
        ),
        (
            lambda: RoPEFwdOp(base=0.0),
            "RoPEFwdOp: base is 0.0; it is above 0",
        ),
        (
            lambda: RoPELlama31FwdOp(low_freq_factor=4.0),
            "RoPELlama31FwdOp: low_freq_factor is 4.0 and high_freq_factor is 4.0; the first is "
            "above 0 and below the second",
        ),
        (
            lambda: RoPEYaRNFwdOp(4.0, 4096, base=1.0),
            "RoPEYaRNFwdOp: base is 1.0; it is above 1, since the ramp divides by its logarithm",
        ),
        (
            lambda: RoPELongRoPEFwdOp([1.0], [1.0, 2.0], **LONG),
            "RoPELongRoPEFwdOp: short_factor is (1.0,) and long_factor is (1.0, 2.0); they have as "
            "many numbers, one a pair",
        ),
        (
            lambda: RoPELongRoPEFwdOp([1.0, 1.0], [1.0, -2.0], **LONG),
            "RoPELongRoPEFwdOp: long_factor is (1.0, -2.0); each number is above 0",
        ),
        (
            lambda: RoPEMultimodalFwdOp((4, 4)),
            "RoPEMultimodalFwdOp: mrope_section has (4, 4); it is the pairs of time, height and "
            "width",
        ),
        (
            lambda: RoPEMultimodalFwdOp((1, 4, 3), interleaved_sections=True),
            "RoPEMultimodalFwdOp: mrope_section is (1, 4, 3); interleaved, every third pair is too "
            "few for its height or width",
        ),
    ],
)
def test_params_are_checked(make: Any, text: str) -> None:
    with pytest.raises(ParamError) as error:
        make()
    assert str(error.value) == text


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: RoPEYaRNFwdOp(4.0, 4096, beta_fast=INFINITE), "beta_fast=inf"),
        (lambda: RoPEYaRNFwdOp(INFINITE, 4096), "factor=inf"),
        (lambda: RoPEYaRNFwdOp(4.0, 4096, attention_factor=INFINITE), "attention_factor=inf"),
        (
            lambda: RoPEYaRNFwdOp(4.0, 4096, mscale=1.0, mscale_all_dim=-10 / math.log(4.0)),
            "mscale_all_dim=-7.2",
        ),
        (lambda: RoPELongRoPEFwdOp([1.0], [1.0], 4096, INFINITE), "factor=inf"),
        (lambda: RoPELongRoPEFwdOp([1e-320], [1.0], **LONG), "short_factor=(1e-320,)"),
        (lambda: RoPEFwdOp(base=1e-300)(torch.zeros(5, 4, 256)), "base=1e-300"),
        (lambda: RoPELlama31FwdOp(base=1e-300)(torch.zeros(5, 4, 256)), "base=1e-300"),
        (
            lambda: RoPEMultimodalFwdOp((64, 32, 32), 1e-300)(
                torch.zeros(5, 4, 256), torch.zeros(3, 5, dtype=torch.int64)
            ),
            "base=1e-300",
        ),
        (
            lambda: FusedQKNormRoPEFwdOp(1, 1, 1, 256, base=1e-300)(
                torch.zeros(5, 768), torch.ones(256), torch.ones(256)
            ),
            "base=1e-300",
        ),
    ],
)
def test_params_that_give_no_finite_rotation_are_refused(make: Any, name: str) -> None:
    with pytest.raises(ParamError) as error:
        make()
    assert re.match(r"(RoPE|FusedQKNormRoPE)\w*FwdOp\(", str(error.value))
    assert name in str(error.value)
    assert "is not a finite number; give params nearer to those of a model" in str(error.value)


Q = torch.zeros(2, 5, 4, 8)
IDS = torch.arange(5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: RoPEFwdOp(10)(Q),
            "RoPEFwdOp: rotary_dim is 10, more than the 8 of a head",
        ),
        (
            lambda: RoPEFwdOp()(Q[..., :7]),
            "RoPEFwdOp: q has heads of 7 elements, which are not pairs; give heads of an even size",
        ),
        (
            lambda: RoPEFwdOp()(Q[0, 0]),
            "RoPEFwdOp: q has shape [4, 8], but the signature needs [*B, S, H, D]",
        ),
        (
            lambda: RoPEFwdOp()(Q, position_ids=IDS[:4]),
            "RoPEFwdOp: position_ids has shape [4], but the signature needs [S] = [5]",
        ),
        (
            lambda: RoPEFwdOp()(Q, position_ids=IDS.float()),
            "RoPEFwdOp: position_ids has dtype float32, but the signature needs P = int64 or int32",
        ),
        (
            lambda: RoPECacheFwdOp()(Q, IDS, torch.zeros(9, 5)),
            "RoPECacheFwdOp: cos_sin_cache has rows of 5 numbers; give an even number, as many "
            "cosines as sines",
        ),
        (
            lambda: RoPECacheFwdOp()(Q, IDS, torch.zeros(9, 10)),
            "RoPECacheFwdOp: cos_sin_cache has rows of 10 numbers, more than the 8 of a head; give "
            "at most that many",
        ),
        (
            lambda: RoPEMultimodalFwdOp((4, 4, 4))(Q, torch.zeros(3, 2, 5, dtype=torch.int64)),
            "RoPEMultimodalFwdOp: mrope_section is [4, 4, 4]; twice its sum is at most the 8 of a "
            "head",
        ),
        (
            lambda: RoPELongRoPEFwdOp([1.0] * 3, [1.0] * 3, **LONG)(Q),
            "RoPELongRoPEFwdOp: short_factor is [1.0, 1.0, 1.0]; with rotary_dim None and heads of "
            "8 it has one number for each pair that is rotated",
        ),
    ],
)
def test_arguments_are_checked(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        call()
    assert str(error.value) == text
