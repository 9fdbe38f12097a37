"""A peer that tests plant: the param ``behaviour``, or else ``FAKE_PEER``, says how it behaves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

DISTRIBUTION = "torch"
MODULE = os.environ.get("FAKE_PEER_MODULE", "torch")

print("libraries print")


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Callable[..., Any] | None:
    behaviour = params.get("behaviour") or os.environ.get("FAKE_PEER", "")
    if op != "BenchScaleFwdOp":
        return None
    if behaviour == "raises":
        raise ValueError("no kernel image")
    if behaviour == "dies":
        sys.exit(3)
    if behaviour == "hangs":
        time.sleep(60)
    off = 1 if behaviour == "wrong" else 0
    return lambda x: x * params["factor"] + off
