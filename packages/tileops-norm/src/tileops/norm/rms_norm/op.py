"""RMSNormFwdOp: root-mean-square normalization over the trailing axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.rms_norm.kernels import (
    LayerNormCall,
    RMSNormFwdInterface,
    RMSNormKernel,
    RMSNormOnChipKernel,
    RMSNormStreamingKernel,
)

__all__ = ["RMSNormFwdOp"]


class RMSNormFwdOp(Op):
    """Root-mean-square normalization (https://arxiv.org/abs/1910.07467).

    ``y = x / sqrt(mean(x**2, over normalized_shape) + eps) * weight``, as
    :func:`torch.nn.functional.rms_norm`. The mean and both products are computed in float32 and
    rounded once, to ``x``'s dtype.

    Args:
        normalized_shape: the sizes of the trailing axes that are normalized together; an int
            stands for one axis.
        eps: added to the mean square. None is the machine epsilon of float32, whatever the
            dtype of ``x``.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, weight=None)``. ``x`` is ``[*B, *normalized_shape]``, float16, bfloat16 or
        float32; ``weight`` is ``[*normalized_shape]``, of ``x``'s dtype or float32. Returns ``y``,
        ``[*B, *normalized_shape]`` of ``x``'s dtype, contiguous whatever the strides of ``x``.

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

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        *,
        target: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape  # type: ignore[assignment]  # made canonical below
        self.eps = eps
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        weight = None if weight is None else weight.contiguous()
        x = x.contiguous()  # the generated checks have run
        call = LayerNormCall(
            device=x.device,
            n=math.prod(self.normalized_shape),
            eps=torch.finfo(torch.float32).eps if self.eps is None else self.eps,
            dtype=x.dtype,
            weight_dtype=None if weight is None else weight.dtype,
            aligned=x.data_ptr() % 16 == 0 and (weight is None or weight.data_ptr() % 16 == 0),
        )
        y: torch.Tensor = self.kernel_for("rms_norm", call)(x, weight)
        return y
