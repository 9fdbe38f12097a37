"""What the README says runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

import tileops.positional

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    torch._dynamo.reset()
    exec(found[1], names)
    assert (names["q"].shape, names["k"].shape) == ((2, 7, 32, 128), (2, 7, 8, 128))


def test_every_op_is_named() -> None:
    named = set(re.findall(r"^\| `(\w+FwdOp)` ", README, re.MULTILINE))
    assert named == {name for name in tileops.positional.__all__ if name.endswith("Op")}
