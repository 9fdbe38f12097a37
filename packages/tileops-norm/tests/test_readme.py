"""The README's example runs, and its table is what the ops say."""

from __future__ import annotations

import re
from pathlib import Path

import torch

import tileops.norm

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, torch.Tensor] = {}
    exec(code, names)
    assert names["y"].dtype == torch.float8_e4m3fn
    assert names["scale"].shape == (2, 8, 1)


def test_the_table_names_every_op_and_its_operators() -> None:
    rows = re.findall(r"^\| `(\w+Op)` \|.*\| (`.*`) \|$", README.read_text(encoding="utf-8"), re.M)
    said = {}
    for op, operators in rows:
        first, *others = re.findall(r"`([^`]+)`", operators)
        more = [first + other.removeprefix("…") for other in others]
        said[op] = tuple(f"tileops::norm_{name}" for name in (first, *more))
    ops = [name for name in tileops.norm.__all__ if name != "__version__"]
    assert said == {name: getattr(tileops.norm, name).compile_op_names for name in ops}
