"""What the tests of serving share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tileops.core import builds, instances, programs, register_target, warm_up_done
from tileops.core.targets import unregister_target

from . import serving_ops

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The ops with their target registered, nothing built or held, and no store."""
    monkeypatch.setenv("TILEOPS_CACHE_DIR", "off")
    monkeypatch.setattr(programs, "_programs", type(programs._programs)())
    monkeypatch.setattr(instances, "_held", {})
    monkeypatch.setattr(builds, "_late", 0)
    for name in ("build", "launch", "device"):
        monkeypatch.setattr(serving_ops.fault, name, None)
    serving_ops.events.clear()
    torch._dynamo.reset()
    register_target(serving_ops.BUILDING)
    yield serving_ops
    warm_up_done(False)
    unregister_target("building")
