"""Makes ``calls`` importable by the tests beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()
