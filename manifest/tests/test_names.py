"""Classes, files and operators are named after each other."""

import pytest

from tileops.manifest.names import class_key, operator_name, snake_case, stem_key


@pytest.mark.parametrize(
    ("class_name", "snake"),
    [
        ("RMSNormFwdOp", "rms_norm_fwd"),
        ("GQAPrefillFwdOp", "gqa_prefill_fwd"),
        ("FusedAddRMSNormFwdOp", "fused_add_rms_norm_fwd"),
        ("PagedKVCacheWriteFwdOp", "paged_kv_cache_write_fwd"),
        ("Conv2dOp", "conv2d"),
        ("TopK", "top_k"),
        ("Op", "op"),
        # The rule splits what is one word to a person: such an entry says `snake` itself.
        ("RoPEFwdOp", "ro_pe_fwd"),
    ],
)
def test_snake_case(class_name: str, snake: str) -> None:
    assert snake_case(class_name) == snake


@pytest.mark.parametrize(
    ("family", "snake", "name"),
    [
        ("norm", "rms_norm_fwd", "norm_rms_norm_fwd"),
        ("norm", "norm_stats", "norm_stats"),
        ("norm", "norm", "norm"),
        ("norm", "normalize_fwd", "norm_normalize_fwd"),
        ("layer_norm", "layer_fwd", "layer_norm_layer_fwd"),
    ],
)
def test_the_family_prefix_is_compared_by_whole_words(family: str, snake: str, name: str) -> None:
    assert operator_name(family, snake) == name


def test_a_class_and_its_file_share_a_key_however_words_are_split() -> None:
    assert class_key("RoPEFwdOp") == stem_key("rope_fwd") == stem_key("ro_pe_fwd")
