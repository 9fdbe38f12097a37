"""What reports say is computed from their samples."""

from __future__ import annotations

import copy
from typing import Any

from tileops.core.bench.compare import compare
from tileops.core.bench.readings import table

REPORT: dict[str, Any] = {
    "format": 1,
    "complete": True,
    "surroundings": {
        "device": "Card",
        "kind": "cuda",
        "driver": "1.2",
        "cuda": "13",
        "python": "3.12",
        "system": "Linux",
        "threads": 1,
        "versions": {"torch": "2.13"},
    },
    "sessions": [
        {
            "date": "2026-01-01T00:00:00+00:00",
            "clocks": {},
            "rounds": 3,
            "bandwidth": 4e12,
            "rates": {"bfloat16": 7e14},
        }
    ],
    "rows": [
        {
            "session": 0,
            "seed": 1,
            "op": "AFwdOp",
            "family": "a",
            "workload": "one",
            "model": "m",
            "phase": "p",
            "inputs": {"x": {"dtype": "bfloat16", "shape": [8, 4]}},
            "target": "tilelang",
            "flops": 10,
            "bytes": 4000000,
            "limit": {"seconds": 1e-6, "bound": "memory"},
            "again": {"device": [2.02e-6] * 3},
            "subjects": [
                {
                    "name": "tileops",
                    "version": "",
                    "status": "timed",
                    "problem": "",
                    "error": 0.1,
                    "samples": {"device": [2e-6] * 3, "host": [5e-6] * 3},
                },
                {
                    "name": "torch",
                    "version": "2.13",
                    "status": "timed",
                    "problem": "",
                    "error": 0.1,
                    "samples": {"device": [4e-6] * 3, "host": [5e-6] * 3},
                },
                {
                    "name": "quack",
                    "version": "",
                    "status": "missing",
                    "problem": "it has no AFwdOp for this call",
                    "error": 0.0,
                    "samples": {},
                },
            ],
        }
    ],
    "overhead": [
        {"what": "import", "unit": "s", "samples": [0.1, 0.1], "problem": ""},
        {"what": "graphs", "unit": "1", "samples": [1], "problem": ""},
        {"what": "second", "unit": "s", "samples": [], "problem": "it died"},
    ],
}


def test_the_table() -> None:
    assert table(REPORT) == [
        "Card, driver 1.2, torch 2.13, Python 3.12",
        "2026-01-01T00:00:00+00:00: 4000 GB/s copied, bfloat16 700 TFLOP/s",
        "",
        "AFwdOp one: x bfloat16[8, 4]; 4000000 bytes, 10 flops, at least 1.00 us by memory",
        "                measure          median us  spread  of limit  ours/its",
        "  tileops       device                2.00    0.0%     50.0%",
        "  tileops       host                  5.00    0.0%",
        "  torch         device                4.00    0.0%     25.0%  0.500 faster",
        "  torch         host                  5.00    0.0%            1.000 tie",
        "  quack         missing: it has no AFwdOp for this call",
        "",
        "what a start and a call cost",
        "  import       100.000 ms (spread 0.0%)",
        "  graphs             1",
        "  second  failed: it died",
    ]


def test_only_what_moved_beyond_the_noise_of_both_is_said() -> None:
    """The noise of both together is 2% here; host time moves by less, device time by more."""
    new = copy.deepcopy(REPORT)
    ours, torch = new["rows"][0]["subjects"][:2]
    ours["samples"]["device"] = [3e-6] * 3
    new["rows"][0]["again"]["device"] = [3.03e-6] * 3
    torch["samples"]["device"] = [4.07e-6] * 3
    assert list(compare(REPORT, new)) == [
        "AFwdOp one tileops device: 2.00 us before, 3.00 now, slower by 50.0% (noise 2.0%)",
        "1 of 6 times moved",
    ]


def test_what_has_no_pair_is_said() -> None:
    new = copy.deepcopy(REPORT)
    new["surroundings"]["driver"] = "1.3"
    new["rows"][0]["workload"] = "two"
    assert list(compare(REPORT, new)) == [
        "driver: 1.2 before, 1.3 now",
        "AFwdOp two: not in the old report",
        "AFwdOp one: not in the new report",
        "0 of 2 times moved",
    ]


def test_costs_move_beyond_their_spreads_and_single_samples_are_not_judged() -> None:
    def cost(what: str, samples: list[float], unit: str = "s") -> dict[str, Any]:
        return {"what": what, "unit": unit, "samples": samples, "problem": "" if samples else "no"}

    old, new = ({**REPORT, "rows": []} for _ in range(2))
    old["overhead"] = [
        cost("import", [1.0, 1.0, 1.0]),
        cost("call", [1.0, 1.1, 1.2]),
        cost("first call", [2.0]),
        cost("graphs", [1.0], "1"),
        cost("broken", [1.0]),
        cost("gone", [1.0]),
    ]
    new["overhead"] = [
        cost("import", [2.0, 2.0, 2.0]),
        cost("call", [1.1, 1.2, 1.2]),
        cost("first call", [3.0]),
        cost("graphs", [32.0], "1"),
        cost("broken", []),
        cost("new", [1.0]),
    ]
    assert list(compare(old, new)) == [
        "import: 1000.000 ms before, 2000.000 now, slower by 100.0% (noise 0.0%)",
        "first call: 2000.000 ms before, 3000.000 now (one sample each has no noise to judge by)",
        "graphs: 1 before, 32 now",
        "broken: failed in this run",
        "new: not in the old report",
        "gone: not in the new report",
        "2 of 3 times moved",
    ]
