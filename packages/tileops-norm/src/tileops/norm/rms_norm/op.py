"""RMSNormFwdOp: root-mean-square normalization over the trailing axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.arguments import FLOAT32_EPS, contiguous, dtype_of
from tileops.norm.rms_norm.kernels import (
    RMSNormFwdInterface,
    RMSNormKernel,
    RMSNormOnChipKernel,
    RMSNormStreamingKernel,
)
from tileops.norm.rows.call import LayerNormCall, start_aligned

__all__ = ["RMSNormFwdOp"]


class RMSNormFwdOp(Op):
    """Root-mean-square normalization (https://arxiv.org/abs/1910.07467).

    ``y = x / sqrt(mean(x**2, over normalized_shape) + eps) * (weight + weight_offset)``, as
    :func:`torch.nn.functional.rms_norm`, whose weight has no offset. The mean, both products and
    ``weight + weight_offset`` are computed in float32, and nothing is rounded before ``y``, once,
    to ``x``'s dtype. (The models' own modules differ here: Llama's rounds before the weight,
    Gemma's does not.)

    Args:
        normalized_shape: the sizes of the trailing axes that are normalized together; an int
            stands for one axis.
        eps: added to the mean square. None is the machine epsilon of float32, whatever the
            dtype of ``x``.
        weight_offset: added to the weight, in float32 and with no rounding before that of ``y``:
            1.0 for Gemma, whose checkpoints hold the weight less one.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, weight=None)``. ``x`` is ``[*B, *normalized_shape]``, float16, bfloat16 or
        float32; ``weight`` is ``[*normalized_shape]``, of ``x``'s dtype or float32, and there where
        there is a ``weight_offset``. Returns ``y``, ``[*B, *normalized_shape]`` of ``x``'s dtype,
        contiguous whatever the strides of ``x``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "rms_norm": RMSNormKernel,
        "rms_norm_streaming": RMSNormStreamingKernel,
        "rms_norm_on_chip": RMSNormOnChipKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {"rms_norm": RMSNormFwdInterface}

    normalized_shape: tuple[int, ...]
    eps: float | None
    weight_offset: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        *,
        weight_offset: float = 0.0,
        target: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape  # type: ignore[assignment]  # made canonical below
        self.eps = eps
        self.weight_offset = weight_offset
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        tensors = contiguous(x, weight)  # the generated checks have run
        call = LayerNormCall(
            device=x.device,
            n=math.prod(self.normalized_shape),
            eps=FLOAT32_EPS if self.eps is None else self.eps,
            dtype=x.dtype,
            weight_dtype=dtype_of(weight),
            aligned=start_aligned(*tensors),
            weight_offset=self.weight_offset,
        )
        y: torch.Tensor = self.kernel_for("rms_norm", call)(*tensors)
        return y
