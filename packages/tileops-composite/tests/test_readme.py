"""The README's example runs and compiles once, and its table is what the entries say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

import tileops.composite
from tileops.manifest import load_entry

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_and_takes_one_graph() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    torch._dynamo.utils.counters.clear()
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["hidden"].shape == (2, 7, 64)
    assert bool(names["hidden"].isfinite().all())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_the_table_names_every_op_and_what_it_is_made_of() -> None:
    rows = dict(re.findall(r"^\| `(\w+Op)` \|.*\|(.*)\|$", README, re.M))
    ops = [name for name in tileops.composite.__all__ if name != "__version__"]
    assert sorted(rows) == sorted(ops)
    for name, said in rows.items():
        made_of = {part.op for part in load_entry(name).composition}
        found = set(re.findall(r"\w+FwdOp", said))
        assert found == (set() if name == "TransformerBlockFwdOp" else made_of)
