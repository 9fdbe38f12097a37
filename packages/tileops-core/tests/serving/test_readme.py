"""What the README says about serving runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tileops.core

README = Path(__file__).parents[2] / "README.md"


def test_the_warm_up_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    """An example that fails is the first thing that a new user meets."""
    norm = pytest.importorskip("tileops.norm", reason="the norm family is not installed")
    section = README.read_text().partition("## Serve a model")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    layer = SimpleNamespace(weight=torch.nn.Parameter(torch.ones(4096, dtype=torch.bfloat16)))
    names = {"torch": torch, "tileops": tileops, "layer": layer, "RMSNormFwdOp": norm.RMSNormFwdOp}
    try:
        exec(found[1], names)
    finally:
        tileops.core.warm_up_done(False)
    first, *calls = capsys.readouterr().out.splitlines()
    assert first.startswith("RMSNormFwdOp: 67 calls warm in ")
    assert calls[0].startswith("  x: bfloat16[1, 4096] on cpu, weight: bfloat16[4096] on cpu: ")
