"""RoPEMultimodalFwdOp: rotary position embedding of text, images and video."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from tileops.positional.rope.base import RotaryOp
from tileops.positional.rope.frequencies import Rotation, default_rotation, finite_rotation

__all__ = ["RoPEMultimodalFwdOp"]


class RoPEMultimodalFwdOp(RotaryOp):
    """Rotary position embedding by time, height and width (https://arxiv.org/abs/2409.12191).

    As :class:`RoPEFwdOp`, but each pair goes by one of a token's three positions. With
    ``mrope_section = (t, h, w)`` the first t pairs go by its time, the next h by its height and the
    last w by its width, as in Qwen2-VL. With ``interleaved_sections``, as in Qwen3-VL, the pairs
    1, 4, 7, … go by height, h of them, 2, 5, 8, … by width, w of them, and the others by time.

    Args:
        mrope_section: how many pairs go by each position; together all that are rotated.
        base: the longest wavelength over 2 pi (rope_theta).
        interleaved: whether neighbours make a pair (GLM-4V) rather than the two halves (Qwen).
        interleaved_sections: see above.
        inplace: whether q and k are written, and returned, rather than new tensors.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(q, position_ids, k=None)``. ``q`` is ``[*B, S, H, D]``, ``k`` ``[*B, S, Hkv, D]``, both
        of one of float16, bfloat16, float32; ``position_ids`` are int64 or int32, ``[3, *B, S]``:
        time, height, width. Twice the sum of ``mrope_section`` is at most D; what is above it
        stays as it is. Returns the rotated q, or with k the two of them; one launch makes both.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    mrope_section: tuple[int, ...]
    base: float
    interleaved_sections: bool

    def __init__(
        self,
        mrope_section: Sequence[int],
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        interleaved_sections: bool = False,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.mrope_section = mrope_section  # type: ignore[assignment]  # made canonical below
        self.base = base
        self.interleaved = interleaved
        self.interleaved_sections = interleaved_sections
        self.inplace = inplace
        super().__init__(target=target)

    def forward(
        self, q: torch.Tensor, position_ids: torch.Tensor, k: torch.Tensor | None = None
    ) -> Any:
        rotary_dim = 2 * sum(self.mrope_section)
        rotation = finite_rotation(self, lambda _: self.rotation(), rotary_dim)
        return self._rotate(q, k, position_ids, rotary_dim, rotation=rotation)

    def rotation(self) -> Rotation:
        """The frequencies of the pairs, and the position that each goes by."""
        return _rotation(self.mrope_section, self.base, self.interleaved_sections)


@functools.lru_cache(maxsize=128)
def _rotation(sections: tuple[int, ...], base: float, interleaved: bool) -> Rotation:
    time, height, width = sections
    pairs = time + height + width
    rows = [0] * time + [1] * height + [2] * width
    if interleaved:
        rows = [0] * pairs
        rows[1 : 3 * height : 3] = [1] * height
        rows[2 : 3 * width : 3] = [2] * width
    return Rotation(default_rotation(2 * pairs, base).frequencies, rows=tuple(rows))
