"""FusedAddRMSNormFwdOp: adds a residual, then root-mean-square normalization."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.arguments import FLOAT32_EPS, contiguous, dtype_of, into
from tileops.norm.fused_add_rms_norm.kernels import (
    FusedAddRMSNormKernel,
    FusedAddRMSNormOnChipKernel,
    FusedAddRMSNormStreamingKernel,
)
from tileops.norm.fused_add_rms_norm.reference import fused_add_rms_norm_reference
from tileops.norm.rows.call import LayerNormCall, start_aligned
from tileops.norm.rows.kernels import RowsInterface
from tileops.norm.rows.ops import FUSED_ADD_RMS_NORM

__all__ = ["FusedAddRMSNormFwdInterface", "FusedAddRMSNormFwdOp"]


class FusedAddRMSNormFwdInterface(RowsInterface):
    """``(x, residual, weight) -> (y, residual_out)``: contiguous rows, the weight one or None.

    ``y`` may be ``x``, and ``residual_out`` may be ``residual``.
    """

    row_op = FUSED_ADD_RMS_NORM

    @classmethod
    def reference(
        cls, call: LayerNormCall, *inputs: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual, weight = inputs
        assert x is not None
        assert residual is not None
        return fused_add_rms_norm_reference(
            x, residual, weight, call.n, call.eps, call.weight_offset
        )


class FusedAddRMSNormFwdOp(Op):
    """Adds a residual, then root-mean-square normalization (https://arxiv.org/abs/1910.07467).

    ``residual_out = x + residual``, rounded to ``x``'s dtype, and
    ``y = residual_out / sqrt(mean(residual_out**2) + eps) * (weight + weight_offset)``, the mean
    over ``normalized_shape``: :func:`torch.nn.functional.rms_norm` of ``x + residual``. What is
    normalized is the rounded sum, so that ``y`` is the norm of the ``residual_out`` that is
    returned, eager and compiled. The rest is computed in float32 and rounded once, to ``x``'s
    dtype.

    Args:
        normalized_shape: the sizes of the trailing axes that are normalized together; an int
            stands for one axis.
        eps: added to the mean square. None is the machine epsilon of float32, whatever the
            dtype of ``x``.
        inplace: write ``y`` to ``x`` and the sum to ``residual``, and return these two. Another
            operator: its name ends in ``_writes_x_writes_residual``.
        weight_offset: added to the weight, in float32 and with no rounding before that of ``y``:
            1.0 for Gemma, whose checkpoints hold the weight less one.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, residual, weight=None)``. ``x`` and ``residual`` are ``[*B, *normalized_shape]``, of
        one dtype, float16, bfloat16 or float32; ``weight`` is ``[*normalized_shape]``, of ``x``'s
        dtype or float32. Returns ``(y, residual_out)``, both as ``x``. In place
        it is vLLM's ``fused_add_rms_norm(input=x, residual, weight, epsilon)``, which rounds as
        well before the product with the weight.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "fused_add_rms_norm": FusedAddRMSNormKernel,
        "fused_add_rms_norm_on_chip": FusedAddRMSNormOnChipKernel,
        "fused_add_rms_norm_streaming": FusedAddRMSNormStreamingKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "fused_add_rms_norm": FusedAddRMSNormFwdInterface
    }

    normalized_shape: tuple[int, ...]
    eps: float | None
    inplace: bool
    weight_offset: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        *,
        inplace: bool = False,
        weight_offset: float = 0.0,
        target: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape  # type: ignore[assignment]  # made canonical below
        self.eps = eps
        self.inplace = inplace
        self.weight_offset = weight_offset
        super().__init__(target=target)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = contiguous(x, residual, weight)
        call = LayerNormCall(
            device=x.device,
            n=math.prod(self.normalized_shape),
            eps=FLOAT32_EPS if self.eps is None else self.eps,
            dtype=x.dtype,
            weight_dtype=dtype_of(weight),
            aligned=start_aligned(*tensors),
            weight_offset=self.weight_offset,
        )
        y, added = self.kernel_for("fused_add_rms_norm", call)(*tensors)
        return (into(x, y), into(residual, added)) if self.inplace else (y, added)
