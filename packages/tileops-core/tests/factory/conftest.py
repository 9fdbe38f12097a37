"""Makes ``stairs_op`` importable by the tests beside it, and registers its target."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tileops.core import Target, register_target
from tileops.core.targets import unregister_target

sys.path.insert(0, str(Path(__file__).parent))

from stairs_op import kernel_of, launched, made


@pytest.fixture(autouse=True)
def counting() -> Iterator[None]:
    register_target(Target("counting", lambda device: False, kernel_of))
    made.clear()
    launched.clear()
    torch._dynamo.reset()
    yield
    unregister_target("counting")
