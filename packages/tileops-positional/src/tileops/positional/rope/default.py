"""RoPEFwdOp: rotary position embedding with its plain frequencies."""

from __future__ import annotations

from tileops.positional.rope.base import ScaledRotaryOp
from tileops.positional.rope.frequencies import Rotation, default_rotation

__all__ = ["RoPEFwdOp"]


class RoPEFwdOp(ScaledRotaryOp):
    """Rotary position embedding (https://arxiv.org/abs/2104.09864).

    Of a head's first ``rotary_dim`` elements, pair i is ``(x[i], x[i + rotary_dim / 2])``, or
    interleaved ``(x[2 i], x[2 i + 1])``. It becomes ``(a cos t - b sin t, b cos t + a sin t)`` with
    ``t = position * base ** (-2 i / rotary_dim)``; the rest of the head stays as it is. Cosines,
    sines and products are float32, and the result is rounded once. The angle is exact to 2**-32
    and, where the base is at least 1, ``position * 2**-54`` of a turn; the latter, from the
    frequency's rounding to float64, passes what float32 rounds off (2**-26) at position 2**28.

    Args:
        rotary_dim: how much of a head is rotated, from its start, even; None is all of it.
        base: the longest wavelength over 2 pi (rope_theta).
        interleaved: whether neighbours make a pair (GPT-J) rather than the two halves (NeoX).
        inplace: whether q and k are written, and returned, rather than new tensors.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(q, k=None, position_ids=None)``. ``q`` is ``[*B, S, H, D]``, ``k`` ``[*B, S, Hkv, D]``,
        both of one of float16, bfloat16, float32; ``position_ids`` are int64 or int32, ``[S]`` for
        all sequences or ``[*B, S]``, and None counts from 0. Returns the rotated q, or with k the
        two of them; one launch makes both. Every integer is a position, negative ones too.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    base: float

    def __init__(
        self,
        rotary_dim: int | None = None,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.rotary_dim = rotary_dim
        self.base = base
        self.interleaved = interleaved
        self.inplace = inplace
        super().__init__(target=target)

    def rotation(self, rotary_dim: int) -> Rotation:
        return default_rotation(rotary_dim, self.base)
