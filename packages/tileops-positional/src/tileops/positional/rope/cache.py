"""RoPECacheFwdOp: rotary position embedding by a table of cosines and sines."""

from __future__ import annotations

from typing import Any

import torch

from tileops.core import Op
from tileops.positional.rope.base import RotaryOp

__all__ = ["RoPECacheFwdOp", "require_positions"]


def require_positions(op: Op, position_ids: torch.Tensor | None, length: int, rows: int) -> None:
    """Requires that every position have its row in a cache of ``rows``; reads them.

    Without position ids, the positions are those of ``length`` tokens.

    Raises:
        ArgumentError: one has none.
    """
    if position_ids is None:
        position_ids = torch.arange(length)

    def message() -> str:
        low, high = int(position_ids.min()), int(position_ids.max())
        has = f"0 to {rows - 1}" if rows else "no rows"
        return (
            f"the positions go from {low} to {high}, but cos_sin_cache has {has}; give a longer "
            f"cache, or other position_ids"
        )

    op.check_values(((position_ids >= 0) & (position_ids < rows)).all(), message)


class RoPECacheFwdOp(RotaryOp):
    """Rotary position embedding by a table of cosines and sines, looked up by position.

    As :class:`RoPEFwdOp`, but the cosines and sines of position p are the first and the second half
    of ``cos_sin_cache[p]``, as in vLLM's ``rotary_embedding``; their number says how much of a head
    is rotated. Products are float32 and rounded once.

    A position that is out of the table reads nothing, and its token's rotated elements are NaN.
    With ``check_positions`` such a call raises instead; that reads the positions, so it waits for
    the device at each call, and cannot be captured in a CUDA graph.

    Args:
        interleaved: whether neighbours make a pair (GPT-J) rather than the two halves (NeoX).
        check_positions: see above.
        inplace: whether q and k are written, and returned, rather than new tensors.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(q, position_ids, cos_sin_cache, k=None)``. ``q`` is ``[*B, S, H, D]``, ``k`` ``[*B, S,
        Hkv, D]``, both of one of float16, bfloat16, float32; ``position_ids`` are int64 or int32,
        ``[S]`` for all sequences or ``[*B, S]``; ``cos_sin_cache`` is ``[L, R]`` of any of these
        floating dtypes, R even and at most D. Returns the rotated q, or with k the two of them; one
        launch makes both.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not, or with ``check_positions`` a position is out of the table.
        ValuesReadError: positions would have to be checked while a CUDA graph is captured.
        TargetError: the target cannot serve the call.
    """

    check_positions: bool

    def __init__(
        self,
        interleaved: bool = False,
        *,
        check_positions: bool = False,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.interleaved = interleaved
        self.check_positions = check_positions
        self.inplace = inplace
        super().__init__(target=target)

    def forward(
        self,
        q: torch.Tensor,
        position_ids: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        k: torch.Tensor | None = None,
    ) -> Any:
        rows, rotary_dim = cos_sin_cache.shape
        if self.check_positions:
            require_positions(self, position_ids, q.shape[-3], rows)
        return self._rotate(q, k, position_ids, rotary_dim, cache=cos_sin_cache)
