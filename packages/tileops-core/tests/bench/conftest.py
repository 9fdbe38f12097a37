"""What the tests of the benchmarks share."""

from __future__ import annotations

from types import ModuleType

import pytest

from . import bench_ops


@pytest.fixture
def ops() -> ModuleType:
    """The ops, their baselines and the targets that can be planted."""
    return bench_ops
