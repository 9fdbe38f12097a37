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
            "RoPEFwdOp: base is 0.0; it is above 1e-270 and below 1e270, so that each frequency is "
            "a finite number",
        ),
        (
            lambda: RoPELlama31FwdOp(low_freq_factor=4.0),
            "RoPELlama31FwdOp: low_freq_factor is 4.0 and high_freq_factor is 4.0; the first is "
            "above 0 and below the second",
        ),
        (
            lambda: RoPEYaRNFwdOp(4.0, 4096, base=1.0),
            "RoPEYaRNFwdOp: base is 1.0; it is above 1, since the ramp divides by its logarithm, "
            "and below 1e270",
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
            lambda: RoPELongRoPEFwdOp([1.0] * 3, [1.0] * 3, rotary_dim=8, **LONG),
            "RoPELongRoPEFwdOp: short_factor is (1.0, 1.0, 1.0); it has one number for each pair "
            "that is rotated, half as many as rotary_dim, which is 8",
        ),
        (
            lambda: RoPELongRoPEFwdOp([1.0], [math.inf], **LONG),
            "RoPELongRoPEFwdOp: long_factor is (inf,); each number is finite",
        ),
        (
            lambda: RoPEYaRNFwdOp(4.0, 4096, attention_factor=0.0),
            "RoPEYaRNFwdOp: attention_factor is 0.0; it is above 0, or None",
        ),
        (
            lambda: RoPELongRoPEFwdOp([1.0], [1.0], attention_factor=-1.0, **LONG),
            "RoPELongRoPEFwdOp: attention_factor is -1.0; it is above 0, or None",
        ),
        (
            lambda: RoPEYaRNFwdOp(4.0, 4096, beta_fast=math.inf),
            "RoPEYaRNFwdOp: beta_fast is inf; it is a finite number",
        ),
        (
            lambda: RoPEYaRNFwdOp(math.inf, 4096),
            "RoPEYaRNFwdOp: factor is inf; it is a finite number",
        ),
        (
            lambda: RoPEYaRNFwdOp(4.0, 4096, attention_factor=math.inf),
            "RoPEYaRNFwdOp: attention_factor is inf; it is a finite number",
        ),
        (
            lambda: RoPELlama31FwdOp(math.inf),
            "RoPELlama31FwdOp: factor is inf; it is a finite number",
        ),
        (
            lambda: RoPELongRoPEFwdOp([1.0], [1.0], 4096, math.inf),
            "RoPELongRoPEFwdOp: factor is inf; it is a finite number",
        ),
        (
            lambda: RoPEMultimodalFwdOp((2**63, 4, 4)),
            "RoPEMultimodalFwdOp: mrope_section is (9223372036854775808, 4, 4), but the signature "
            "needs a sequence of ints of 64 bits",
        ),
        (
            lambda: RoPEMultimodalFwdOp((4, 4)),
            "RoPEMultimodalFwdOp: mrope_section is (4, 4); it is the pairs of time, height and "
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


BASED: dict[str, Any] = {
    "RoPEFwdOp": RoPEFwdOp,
    "RoPELlama31FwdOp": RoPELlama31FwdOp,
    "RoPELongRoPEFwdOp": lambda base: RoPELongRoPEFwdOp([1.0], [1.0], base=base, **LONG),
    "RoPEMultimodalFwdOp": lambda base: RoPEMultimodalFwdOp((4, 4, 4), base),
    "FusedQKNormRoPEFwdOp": lambda base: FusedQKNormRoPEFwdOp(1, 1, 1, 256, base=base),
}


@pytest.mark.parametrize("base", [math.inf, math.nan, 1e-300, 1e300])
@pytest.mark.parametrize("name", BASED)
def test_a_base_that_gives_no_finite_frequencies(name: str, base: float) -> None:
    """An infinite one was taken, and one of 1e-300 refused by the first call."""
    with pytest.raises(ParamError) as error:
        BASED[name](base=base)
    assert str(error.value) == (
        f"{name}: base is {base}; it is above 1e-270 and below 1e270, so that each frequency is a "
        f"finite number"
    )


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (
            lambda: RoPEYaRNFwdOp(4.0, 4096, mscale=1.0, mscale_all_dim=-10 / math.log(4.0)),
            "mscale_all_dim=-7.2",
        ),
        (lambda: RoPELongRoPEFwdOp([1e-320], [1.0], **LONG), "short_factor=(1e-320,)"),
        # Beyond float32, which kernels take it as.
        (lambda: RoPEYaRNFwdOp(2.0, 4096, attention_factor=1e39), "attention_factor=1e+39"),
    ],
)
def test_params_that_give_no_finite_rotation_are_refused(make: Any, name: str) -> None:
    with pytest.raises(ParamError) as error:
        make()
    assert re.match(r"RoPE\w*FwdOp\(", str(error.value))
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
            lambda: RoPEFwdOp()(Q, position_ids=IDS[None]),
            "RoPEFwdOp: position_ids has shape [1, 5], but the signature needs [*B, S] = [2, 5], "
            "or [S] for all of *B",
        ),
        (
            lambda: RoPEFwdOp()(Q.to("meta"), Q),
            "RoPEFwdOp: k is on cpu, but the call's first tensor is on meta; move one of them",
        ),
        (
            lambda: RoPECacheFwdOp(check_positions=True)(Q, IDS, torch.zeros(0, 8)),
            "RoPECacheFwdOp: the positions go from 0 to 4, but cos_sin_cache has no rows; give a "
            "longer cache, or other position_ids",
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
            "RoPEMultimodalFwdOp: mrope_section is (4, 4, 4); twice its sum is at most the 8 of a "
            "head",
        ),
        (
            lambda: RoPELongRoPEFwdOp([1.0] * 3, [1.0] * 3, **LONG)(Q),
            "RoPELongRoPEFwdOp: short_factor is (1.0, 1.0, 1.0); it has one number for each pair "
            "that is rotated, half as many as the 8 elements of a head",
        ),
    ],
)
def test_arguments_are_checked(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        call()
    assert str(error.value) == text
