"""FusedAddLayerNormFwdOp: adds a residual, then layer normalization."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.arguments import contiguous, dtype_of, into
from tileops.norm.fused_add_layer_norm.kernels import (
    FusedAddLayerNormKernel,
    FusedAddLayerNormOnChipKernel,
    FusedAddLayerNormStreamingKernel,
)
from tileops.norm.fused_add_layer_norm.reference import fused_add_layer_norm_reference
from tileops.norm.rows.call import LayerNormCall, start_aligned
from tileops.norm.rows.kernels import RowsInterface
from tileops.norm.rows.ops import FUSED_ADD_LAYER_NORM

__all__ = ["FusedAddLayerNormFwdInterface", "FusedAddLayerNormFwdOp"]


class FusedAddLayerNormFwdInterface(RowsInterface):
    """``(x, residual, weight, bias) -> (y, residual_out)``: contiguous rows, weight and bias one
    row or None.

    ``y`` may be ``x``, and ``residual_out`` may be ``residual``.
    """

    row_op = FUSED_ADD_LAYER_NORM

    @classmethod
    def reference(
        cls, call: LayerNormCall, *inputs: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual, weight, bias = inputs
        assert x is not None
        assert residual is not None
        return fused_add_layer_norm_reference(x, residual, weight, bias, call.n, call.eps)


class FusedAddLayerNormFwdOp(Op):
    """Adds a residual, then layer normalization (https://arxiv.org/abs/1607.06450).

    ``residual_out = x + residual``, rounded to ``x``'s dtype, and
    ``y = (residual_out - mean) / sqrt(var + eps) * weight + bias``, mean and biased variance over
    ``normalized_shape``: :func:`torch.nn.functional.layer_norm` of ``x + residual``. What is
    normalized is the rounded sum, so that ``y`` is the norm of the ``residual_out`` that is
    returned, eager and compiled. The rest is computed in float32 and rounded once, to ``x``'s
    dtype.

    Args:
        normalized_shape: the sizes of the trailing axes that are normalized together; an int
            stands for one axis.
        eps: added to the variance.
        inplace: write ``y`` to ``x`` and the sum to ``residual``, and return these two. Another
            operator: its name ends in ``_writes_x_writes_residual``.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, residual, weight=None, bias=None)``. ``x`` and ``residual`` are
        ``[*B, *normalized_shape]``, of one dtype, float16, bfloat16 or float32; ``weight`` and
        ``bias`` are ``[*normalized_shape]``, both of ``x``'s dtype or both float32, and either may
        be there without the other. Returns ``(y, residual_out)``, both as ``x``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "fused_add_layer_norm": FusedAddLayerNormKernel,
        "fused_add_layer_norm_on_chip": FusedAddLayerNormOnChipKernel,
        "fused_add_layer_norm_streaming": FusedAddLayerNormStreamingKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "fused_add_layer_norm": FusedAddLayerNormFwdInterface
    }

    normalized_shape: tuple[int, ...]
    eps: float
    inplace: bool

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        *,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape  # type: ignore[assignment]  # made canonical below
        self.eps = eps
        self.inplace = inplace
        super().__init__(target=target)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = contiguous(x, residual, weight, bias)
        call = LayerNormCall(
            device=x.device,
            n=math.prod(self.normalized_shape),
            eps=self.eps,
            dtype=x.dtype,
            weight_dtype=dtype_of(weight),
            aligned=start_aligned(*tensors),
            bias_dtype=dtype_of(bias),
        )
        y, added = self.kernel_for("fused_add_layer_norm", call)(*tensors)
        return (into(x, y), into(residual, added)) if self.inplace else (y, added)
