"""FusedAddRMSNormPerTokenQuantFwdOp: adds a residual, then RMSNorm quantized a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.arguments import FLOAT32_EPS, contiguous, into, per_row
from tileops.norm.fused_add_rms_norm_per_token_quant.kernels import (
    FusedAddRMSNormPerTokenQuantKernel,
    FusedAddRMSNormPerTokenQuantOnChipKernel,
    FusedAddRMSNormPerTokenQuantStreamingKernel,
)
from tileops.norm.fused_add_rms_norm_per_token_quant.reference import (
    fused_add_rms_norm_per_token_quant_reference,
)
from tileops.norm.rows.call import LayerNormCall, start_aligned
from tileops.norm.rows.kernels import RowsInterface
from tileops.norm.rows.ops import FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT

__all__ = ["FusedAddRMSNormPerTokenQuantFwdInterface", "FusedAddRMSNormPerTokenQuantFwdOp"]


class FusedAddRMSNormPerTokenQuantFwdInterface(RowsInterface):
    """``(x, residual, weight) -> (y, scale, residual_out)``: contiguous rows, the weight one row,
    scale a number each. ``residual_out`` may be ``residual``."""

    row_op = FUSED_ADD_RMS_NORM_PER_TOKEN_QUANT

    @classmethod
    def reference(
        cls, call: LayerNormCall, *inputs: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, residual, weight = inputs
        assert x is not None
        assert residual is not None
        assert weight is not None
        return fused_add_rms_norm_per_token_quant_reference(
            x, residual, weight, call.n, call.eps, call.weight_offset, call.scale_ub
        )


class FusedAddRMSNormPerTokenQuantFwdOp(Op):
    """Adds a residual, then root-mean-square normalization quantized to fp8 with one scale a row.

    ``residual_out = x + residual``, rounded to ``x``'s dtype;
    ``n = residual_out / sqrt(mean(residual_out**2) + eps) * (weight + weight_offset)``, the mean
    over ``normalized_shape``, which makes up a row;
    ``scale = max(min(max(abs(n), a row), scale_ub), 1 / 512) / 448`` and
    ``y = clip(n / scale, -448, 448)`` as float8_e4m3fn. All of it is computed in float32; ``n`` is
    never rounded, and ``y`` once, to the nearest, ties to even. A NaN, which an infinity in ``x``
    leads to as well, makes its row's scale and values NaN. ``y.float() * scale`` gives ``n`` back.

    As vLLM's ``rms_norm_dynamic_per_token_quant`` with a residual, which normalizes the sum as it
    is before it is rounded, and rounds to ``x``'s dtype before the product with the weight.

    Args:
        normalized_shape: the sizes of the trailing axes that are normalized together; an int
            stands for one axis.
        eps: added to the mean square. None is the machine epsilon of float32, whatever the
            dtype of ``x``.
        scale_ub: an upper bound of the greatest magnitude that a scale covers; what exceeds it is
            clipped. None is no bound.
        inplace: write the sum to ``residual``, and return it in the sum's place. Another operator:
            its name ends in ``_writes_residual``.
        weight_offset: added to the weight, in float32 and with no rounding before that of ``y``:
            1.0 for Gemma, whose checkpoints hold the weight less one.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, residual, weight)``. ``x`` and ``residual`` are ``[*B, *normalized_shape]``, of one
        dtype, float16, bfloat16 or float32; ``weight`` is ``[*normalized_shape]``, of ``x``'s dtype
        or float32. Returns ``(y, scale, residual_out)``: ``[*B, *normalized_shape]``,
        float8_e4m3fn; ``[*B, 1]``, float32; and the sum, as ``x``.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "fused_add_rms_norm_per_token_quant": FusedAddRMSNormPerTokenQuantKernel,
        "fused_add_rms_norm_per_token_quant_on_chip": FusedAddRMSNormPerTokenQuantOnChipKernel,
        "fused_add_rms_norm_per_token_quant_streaming": FusedAddRMSNormPerTokenQuantStreamingKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "fused_add_rms_norm_per_token_quant": FusedAddRMSNormPerTokenQuantFwdInterface
    }

    normalized_shape: tuple[int, ...]
    eps: float | None
    scale_ub: float | None
    inplace: bool
    weight_offset: float

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        *,
        scale_ub: float | None = None,
        inplace: bool = False,
        weight_offset: float = 0.0,
        target: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape  # type: ignore[assignment]  # made canonical below
        self.eps = eps
        self.scale_ub = scale_ub
        self.inplace = inplace
        self.weight_offset = weight_offset
        super().__init__(target=target)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        tensors = contiguous(x, residual, weight)
        call = LayerNormCall(
            device=x.device,
            n=math.prod(self.normalized_shape),
            eps=FLOAT32_EPS if self.eps is None else self.eps,
            dtype=x.dtype,
            weight_dtype=weight.dtype,
            aligned=start_aligned(*tensors),
            weight_offset=self.weight_offset,
            scale_ub=self.scale_ub,
        )
        y, scale, added = self.kernel_for("fused_add_rms_norm_per_token_quant", call)(*tensors)
        scale = per_row(scale, x, len(self.normalized_shape))
        return y, scale, into(residual, added) if self.inplace else added
