"""What the tests of effects share."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

from . import effect_ops, targets


@pytest.fixture
def ops() -> Iterator[ModuleType]:
    """The ops with their targets registered, on a fresh compiler."""
    torch._dynamo.reset()
    targets.register_targets()
    yield effect_ops
    targets.unregister_targets()
