"""LayerNormFwdOp: layer normalization over the trailing axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.arguments import contiguous, dtype_of
from tileops.norm.layer_norm.kernels import (
    LayerNormKernel,
    LayerNormOnChipKernel,
    LayerNormStreamingKernel,
)
from tileops.norm.layer_norm.reference import layer_norm_reference
from tileops.norm.rows.call import LayerNormCall, start_aligned
from tileops.norm.rows.kernels import RowsInterface
from tileops.norm.rows.ops import LAYER_NORM

__all__ = ["LayerNormFwdInterface", "LayerNormFwdOp"]


class LayerNormFwdInterface(RowsInterface):
    """``(x, weight, bias) -> y``: x and y are contiguous rows, weight and bias one or None."""

    row_op = LAYER_NORM

    @classmethod
    def reference(cls, call: LayerNormCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        x, weight, bias = inputs
        assert x is not None
        return layer_norm_reference(x, weight, bias, call.n, call.eps)


class LayerNormFwdOp(Op):
    """Layer normalization (https://arxiv.org/abs/1607.06450).

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, mean and biased variance over
    ``normalized_shape``, as :func:`torch.nn.functional.layer_norm`. All of it is computed in
    float32 and rounded once, to ``x``'s dtype; the variance is that of the differences from the
    mean wherever a difference of sums would lose more than three bits, so that a large mean costs
    no digits.

    Args:
        normalized_shape: the sizes of the trailing axes that are normalized together; an int
            stands for one axis.
        eps: added to the variance.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, weight=None, bias=None)``. ``x`` is ``[*B, *normalized_shape]``, float16, bfloat16
        or float32; ``weight`` and ``bias`` are ``[*normalized_shape]``, both of ``x``'s dtype or
        both float32, and either may be there without the other. Returns ``y``,
        ``[*B, *normalized_shape]`` of ``x``'s dtype, contiguous whatever the strides of ``x``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "layer_norm": LayerNormKernel,
        "layer_norm_on_chip": LayerNormOnChipKernel,
        "layer_norm_streaming": LayerNormStreamingKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "layer_norm": LayerNormFwdInterface
    }

    normalized_shape: tuple[int, ...]
    eps: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        *,
        target: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape  # type: ignore[assignment]  # made canonical below
        self.eps = eps
        super().__init__(target=target)

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        tensors = contiguous(x, weight, bias)
        call = LayerNormCall(
            device=x.device,
            n=math.prod(self.normalized_shape),
            eps=self.eps,
            dtype=x.dtype,
            weight_dtype=dtype_of(weight),
            aligned=start_aligned(*tensors),
            bias_dtype=dtype_of(bias),
        )
        y: torch.Tensor = self.kernel_for("layer_norm", call)(*tensors)
        return y
