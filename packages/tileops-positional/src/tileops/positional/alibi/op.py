"""AlibiFwdOp: the attention bias of ALiBi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.positional.alibi.kernels import AlibiCall, AlibiFwdInterface, AlibiKernel

__all__ = ["AlibiFwdOp"]


class AlibiFwdOp(Op):
    """The bias of attention with linear biases (https://arxiv.org/abs/2108.12409).

    ``bias[h, i, j] = -slope[h] * |i - j|``. With n the greatest power of two up to ``num_heads``,
    the slope of head h is ``2 ** (-8 * (h + 1) / n)`` below n, and ``2 ** (-4 * (2 * (h - n) + 1) /
    n)`` from n on: every second slope that twice as many heads would have. Slopes and products are
    float32, rounded once to ``dtype``; in float16 a distance whose product passes 65504 gives
    -inf.

    Args:
        seq_len: queries, and keys.
        num_heads: heads, a power of two or not.
        dtype: float32, float16 or bfloat16.
        device: where the table is made; None is PyTorch's default device at the call.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op()`` returns the bias, ``[num_heads, seq_len, seq_len]``, in new memory each time. The
        op has no operator: a compiled call is plain PyTorch, and the table is fused into what adds
        it to the scores.

    Raises:
        ParamError: a constructor parameter is not what the entry needs, or the device is not here.
        TargetError: the target cannot serve the call; an explicit one other than ``reference``
            serves no call that is traced.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {"alibi": AlibiKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"alibi": AlibiFwdInterface}

    seq_len: int
    num_heads: int
    dtype: torch.dtype
    device: torch.device | None

    def __init__(
        self,
        seq_len: int,
        num_heads: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        target: str | None = None,
    ) -> None:
        self.seq_len = seq_len
        self.num_heads = num_heads
        self.dtype = dtype
        self.device = device  # type: ignore[assignment]  # made canonical below
        super().__init__(target=target)

    def forward(self) -> torch.Tensor:
        call = AlibiCall(self.output_device(), self.dtype, self.num_heads, self.seq_len)
        bias: torch.Tensor = self.kernel_for("alibi", call)()
        return bias
