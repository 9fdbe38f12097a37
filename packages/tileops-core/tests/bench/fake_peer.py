"""A peer that tests plant: it behaves as the param ``behaviour`` says."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

DISTRIBUTION = "torch"
MODULE = os.environ.get("FAKE_PEER_MODULE", "torch")

print("libraries print")
if os.environ.get("FAKE_PEER") == "hangs":
    time.sleep(60)


def make(op: str, params: dict[str, Any], arguments: dict[str, Any]) -> Callable[..., Any] | None:
    behaviour = params.get("behaviour", "")
    if op != "BenchScaleFwdOp":
        return None
    if behaviour == "raises":
        raise ValueError("no kernel image")
    if behaviour == "dies":
        sys.exit(3)
    if behaviour == "fraction":
        return lambda x: Fraction(1, 2)
    return lambda x: x * params["factor"]
