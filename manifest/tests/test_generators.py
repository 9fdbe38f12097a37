"""The values of inputs that carry them."""

from __future__ import annotations

from typing import Any

import pytest

from tileops.manifest import iter_entries, load_entry
from tileops.manifest.calls import resolve
from tileops.manifest.generators import GeneratorError, generate


def one(kind: str, shape: tuple[int, ...], **arguments: Any) -> list[int]:
    return generate({"x": {"kind": kind, **arguments}}, {"x": shape}, {"N": 10, "p": 4})["x"]


@pytest.mark.parametrize(
    ("kind", "shape", "arguments", "values"),
    [
        ("lengths", (3,), {"each": 5}, [5, 5, 5]),
        ("lengths", (3,), {"each": "N // 2"}, [5, 5, 5]),
        ("lengths", (4,), {"values": [3, 2], "total": "N"}, [3, 2, 3, 2]),
        ("cu_seqlens", (4,), {"values": [3, 2, 5], "total": "N"}, [0, 3, 5, 10]),
        ("cu_seqlens", (1,), {"each": 7}, [0]),
        ("positions", (2, 3), {}, [0, 1, 2, 0, 1, 2]),
        ("positions", (3,), {"start": "N"}, [10, 11, 12]),
        ("constant", (), {"value": 7}, [7]),
        ("positions", (0,), {}, []),
    ],
)
def test_values(
    kind: str, shape: tuple[int, ...], arguments: dict[str, Any], values: list[int]
) -> None:
    assert one(kind, shape, **arguments) == values


def test_positions_start_again_with_each_sequence() -> None:
    made = generate(
        {"ids": {"kind": "positions", "lengths": "cu"}, "cu": {"kind": "cu_seqlens", "each": 2}},
        {"ids": (4,), "cu": (3,)},
        {},
    )
    assert made["ids"] == [0, 1, 0, 1]


def test_slots_are_different_and_scattered() -> None:
    slots = one("slots", (10,), below="N")
    assert sorted(slots) == list(range(10))
    assert slots != list(range(10))


def test_a_range_is_the_same_every_time() -> None:
    """A roofline and the benchmark that it judges must speak of one call."""
    values = one("range", (100,), start=3, below="N")
    assert values == one("range", (100,), start=3, below="N")
    assert set(values) == set(range(3, 10))


def test_a_block_table_has_different_pages_for_what_is_in_use() -> None:
    made = generate(
        {
            "table": {"kind": "block_table", "lengths": "lens", "page_size": "p", "below": "N"},
            "lens": {"kind": "lengths", "values": [9, 0, 4]},
        },
        {"table": (3, 4), "lens": (3,)},
        {"N": 10, "p": 4},
    )
    rows = [made["table"][at : at + 4] for at in (0, 4, 8)]
    used = [*rows[0][:3], *rows[2][:1]]
    assert len(set(used)) == 4
    assert max(used) < 10
    assert (rows[0][3:], rows[1], rows[2][1:]) == ([0], [0] * 4, [0] * 3)


@pytest.mark.parametrize(
    ("kind", "shape", "arguments", "message"),
    [
        ("lengths", (3,), {}, "x: it takes `each` or `values`, one of the two"),
        ("lengths", (3,), {"each": -1}, "x: lengths are at least 0"),
        ("lengths", (3,), {"each": 3, "total": "N"}, "x: the lengths sum to 9, and N is 10"),
        ("lengths", (3,), {"each": "M"}, "x: each reads 'M', which the call does not have"),
        ("lengths", (3,), {"each": "N / 2"}, "x: each is an int, not 5.0"),
        ("slots", (3,), {}, "x: slots needs below"),
        (
            "constant",
            (1 << 20, 5),
            {"value": 1},
            "x: it has 5242880 values; at most 4194304 are generated",
        ),
        ("slots", (3,), {"below": 2}, "x: 3 different numbers are not below 2"),
        ("range", (3,), {"below": 0}, "x: no number is at least 0 and below 0"),
        ("constant", (3,), {"value": 1, "each": 2}, "x: constant takes no each"),
        (
            "positions",
            (3,),
            {"lengths": "cu"},
            "x: lengths names 'cu', which no generator has made before it",
        ),
    ],
)
def test_wrong_arguments(
    kind: str, shape: tuple[int, ...], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(GeneratorError) as caught:
        one(kind, shape, **arguments)
    assert str(caught.value) == message


def test_positions_take_no_more_memory_than_the_input_has() -> None:
    assert generate({"x": {"kind": "positions"}}, {"x": (0, 10**15)}, {}) == {"x": []}
    made = generate(
        {"x": {"kind": "positions", "lengths": "cu"}, "cu": {"kind": "cu_seqlens", "each": 10**15}},
        {"x": (3,), "cu": (3,)},
        {},
    )
    assert made["x"] == [0, 1, 2]


def test_a_pool_that_is_too_small() -> None:
    with pytest.raises(GeneratorError) as caught:
        generate(
            {
                "table": {"kind": "block_table", "lengths": "lens", "page_size": 4, "below": 2},
                "lens": {"kind": "lengths", "each": 9},
            },
            {"table": (1, 4), "lens": (1,)},
            {},
        )
    assert str(caught.value) == (
        "table: the lengths need 3 pages, at most 3 a row; there are 2, and 4 a row"
    )


def test_every_generated_input_of_every_workload_is_filled() -> None:
    for entry in iter_entries():
        for workload in entry.workloads:
            call = resolve(entry, workload)
            for name in workload.generators:
                facts = call.inputs[name]
                assert facts is not None
                assert facts.values is not None
                size = 1
                for axis in facts.shape:
                    size *= axis
                assert len(facts.values) == size


def test_a_call_knows_its_branch() -> None:
    entry = load_entry("RoPEFwdOp")
    labels = {workload.label: resolve(entry, workload) for workload in entry.workloads}
    assert labels["qwen3-8b-prefill"].branch(entry).written == ()
    assert labels["qwen3-8b-decode-inplace"].branch(entry).written == ("q", "k")
