"""What the tests of core share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tileops.core.targets import unregister_target


@pytest.fixture(scope="session")
def effect_ops() -> ModuleType:
    """The module ``effect_ops.py``: by path, since tests are no package and cannot import it."""
    path = Path(__file__).with_name("effect_ops.py")
    spec = importlib.util.spec_from_file_location("tileops_tests_effect_ops", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ops(effect_ops: ModuleType) -> Iterator[ModuleType]:
    """The ops with their targets registered, on a fresh compiler."""
    torch._dynamo.reset()
    effect_ops.register_targets()
    yield effect_ops
    for target in (effect_ops.FILLING, effect_ops.LIAR):
        unregister_target(target.name)
