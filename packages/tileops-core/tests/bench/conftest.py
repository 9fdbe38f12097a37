"""What the tests of the benchmarks share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def ops() -> ModuleType:
    """``bench_ops.py``, by the name under which a fresh process imports it."""
    path = Path(__file__).with_name("bench_ops.py")
    spec = importlib.util.spec_from_file_location("bench_ops", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
