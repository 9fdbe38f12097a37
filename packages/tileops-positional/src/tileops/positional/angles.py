"""Angles for the kernels, as fractions of a turn in 64-bit integers.

A position times a frequency in float32 loses ``position * frequency * 2**-24`` of the angle: at
position 100,000 that is 6e-3 for a frequency of 1. Here a frequency is the integer ``frequency /
(2 pi) * 2**64``. Its product with a position, modulo 2**64, is the angle modulo a turn, for any
int64 position, negative ones too. The upper half of the product is that angle to 2**-32 of a turn.

Short tables take the frequency in float64 instead, in turns a position (``float_turns``): as exact,
where it is at most 1, and a multiplication and an addition give the angle's lower 32 bits.

The frequency itself is worked out in float64. One that is at most 1 is off by less than 2**-54 of a
turn a position, so the angle by less than ``position * 2**-54`` of a turn: more than the 2**-26 of
a turn that float32 rounds off from position 2**28 on, and a whole turn at 2**54.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tileops.core.errors import CaptureError

__all__ = ["device_turns", "float_turns", "turns"]

_TABLES: dict[tuple[tuple[float, ...], torch.dtype, torch.device], torch.Tensor] = {}


def turns(frequencies: Sequence[float]) -> list[int]:
    """Each frequency (radians a position) in 2**-64 of a turn a position, as an int64."""
    found = (round(frequency / (2 * math.pi) * 2.0**64) % 2**64 for frequency in frequencies)
    return [turn - 2**64 if turn >= 2**63 else turn for turn in found]


def float_turns(frequencies: Sequence[float]) -> list[float]:
    """Each frequency (radians a position) in turns a position."""
    return [frequency / (2 * math.pi) for frequency in frequencies]


def device_turns(
    words: tuple[float, ...], device: torch.device, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """``words`` as a tensor on ``device``, the same one whenever they are asked for.

    It lives as long as the process: a captured CUDA graph goes on reading it when the op that it
    was captured from is gone. One takes a few hundred bytes.

    Raises:
        CaptureError: it is not there yet, and a CUDA graph is being captured.
    """
    found = _TABLES.get((words, dtype, device))
    if found is not None:
        return found
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise CaptureError(
            f"frequencies are copied to {device} at their first use, which cannot be done while a "
            f"CUDA graph is captured; call the op once before the capture, then capture again"
        )
    # An inference tensor, made in a call under inference_mode, would serve all later calls too.
    with torch.inference_mode(False):
        table = torch.tensor(words, dtype=dtype, device=device)
    # Nor may one that a mode made, such as a fake one, serve calls outside of the mode.
    if type(table) is torch.Tensor:
        return _TABLES.setdefault((words, dtype, device), table)
    return table
