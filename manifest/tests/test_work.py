"""What rooflines count, beside counting it one by one."""

from __future__ import annotations

import itertools

import pytest

from tileops.manifest import load_entry
from tileops.manifest.calls import least_work, resolve
from tileops.manifest.expressions import Expression
from tileops.manifest.work import TensorFacts

BOUNDS = (None, -1, 0, 1, 3)


def pairs_one_by_one(
    queries: int, keys: int, causal: bool, left: int | None, right: int | None
) -> int:
    def sees(query: int, key: int) -> bool:
        place = keys - queries + query
        before = left is None or left < 0 or key >= place - left
        after = right is None or right < 0 or key <= place + right
        return before and after and not (causal and key > place)

    return sum(sees(q, k) for q, k in itertools.product(range(queries), range(keys)))


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 7), (3, 8), (7, 3), (0, 4), (4, 0)])
@pytest.mark.parametrize("causal", [True, False])
def test_pairs_are_those_that_attend(queries: int, keys: int, causal: bool) -> None:
    """The closed form is right for every window, more queries than keys included."""
    expression = Expression("pairs(q, k, causal, left, right)")
    for left, right in itertools.product(BOUNDS, BOUNDS):
        values = {"q": queries, "k": keys, "causal": causal, "left": left, "right": right}
        assert expression.evaluate(values) == pairs_one_by_one(queries, keys, causal, left, right)


def test_pairs_of_sequences_are_summed() -> None:
    values = {"one": 2, "many": (3, 4), "starts": TensorFacts((3,), "int32", [0, 3, 7])}
    assert Expression("pairs(one, many)").evaluate(values) == 2 * 3 + 2 * 4
    assert Expression("pairs(lengths(starts), many, True)").evaluate(values) == 6 + 10


def test_pages_hold_the_last_tokens_too() -> None:
    assert Expression("pages(lens, 16)").evaluate({"lens": (0, 1, 16, 17)}) == 0 + 1 + 1 + 2


def test_bytes_of_a_tensor_that_is_not_there_are_none() -> None:
    values = {"x": TensorFacts((2, 3), "bfloat16"), "y": None}
    assert Expression("nbytes(x) + nbytes(y) + itemsize('float32')").evaluate(values) == 16


def work(op: str, label: str) -> tuple[int, int]:
    entry = load_entry(op)
    workload = next(workload for workload in entry.workloads if workload.label == label)
    return least_work(entry, resolve(entry, workload))


def test_bytes_that_the_signature_implies() -> None:
    """Each input is read once and each result written once."""
    rows, columns = 2048, 4096
    flops, moved = work("RMSNormFwdOp", "llama-3.1-8b-prefill")
    assert (flops, moved) == (4 * rows * columns, 2 * (2 * rows * columns + columns))


def test_a_written_input_is_read_and_written() -> None:
    rows, columns = 32, 4096
    _, moved = work("FusedAddRMSNormFwdOp", "llama-3.1-8b-decode-inplace")
    assert moved == 2 * (4 * rows * columns + columns)


def test_a_rank_chooses_among_alternative_shapes() -> None:
    """All of x's dims are given either way; a row a sample is less than one a token."""
    (_, sample), (_, token) = (
        work("AdaLayerNormFwdOp", label) for label in ("dit-xl-2-256", "wan2.2-ti2v-5b-720p")
    )
    assert sample == 2 * (2 * 16 * 256 * 1152 + 2 * 16 * 1152)
    assert token == 2 * 4 * 27280 * 3072


def test_paged_attention_counts_the_tokens_in_use_and_not_the_pool() -> None:
    lengths = [8192, 513, 2048, 77, 4096, 1, 3000, 1024] * 4
    flops, moved = work("GQAPagedFwdOp", "llama-3.1-8b-decode-ragged")
    assert flops == 2 * 32 * 256 * sum(lengths)
    queries = 2 * 32 * 32 * 128 * 2
    tables = 4 * 32 + 4 * sum(-(-length // 16) for length in lengths)
    assert moved == queries + sum(lengths) * 8 * 256 * 2 + tables
