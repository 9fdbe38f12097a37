"""AdaLayerNormZeroFwdOp: adds a gated branch, then adaptive layer normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.ada_layer_norm_zero.kernels import (
    AdaLayerNormZeroKernel,
    AdaLayerNormZeroOnChipKernel,
    AdaLayerNormZeroStreamingKernel,
)
from tileops.norm.ada_layer_norm_zero.reference import ada_layer_norm_zero_reference
from tileops.norm.arguments import contiguous
from tileops.norm.rows.call import LayerNormCall, start_aligned
from tileops.norm.rows.kernels import RowsInterface
from tileops.norm.rows.ops import ADA_LAYER_NORM_ZERO

__all__ = ["AdaLayerNormZeroFwdInterface", "AdaLayerNormZeroFwdOp"]


class AdaLayerNormZeroFwdInterface(RowsInterface):
    """``(x, residual, gate, scale, shift) -> (y, residual_out)``: contiguous [B, S, N]; of the rows
    of gate, scale and shift there is one a sample or one a token."""

    row_op = ADA_LAYER_NORM_ZERO

    @classmethod
    def reference(
        cls, call: LayerNormCall, *inputs: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual, gate, scale, shift = inputs
        assert x is not None
        assert residual is not None
        assert gate is not None
        assert scale is not None
        assert shift is not None
        return ada_layer_norm_zero_reference(x, residual, gate, scale, shift, call.eps)


class AdaLayerNormZeroFwdOp(Op):
    """The step between the halves of an adaLN-Zero block (https://arxiv.org/abs/2212.09748).

    ``residual_out = residual + gate * x``, and
    ``y = (residual_out - mean) / sqrt(var + eps) * (1 + scale) + shift``, mean and biased variance
    over the last axis. The gated sum is computed in float32 and rounded once, to ``x``'s dtype; the
    rounded sum is what is normalized, in float32 and with one rounding, of ``y``.

    Args:
        eps: added to the variance.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, residual, gate, scale, shift)``, all of one dtype, float16, bfloat16 or float32.
        ``x``, what the branch gave, and ``residual`` are ``[B, S, N]``; ``gate``, ``scale`` and
        ``shift`` are each ``[B, N]``, a row a sample, or ``[B, S, N]``, a row a token. Returns
        ``(y, residual_out)``, both ``[B, S, N]`` and contiguous.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "ada_layer_norm_zero": AdaLayerNormZeroKernel,
        "ada_layer_norm_zero_on_chip": AdaLayerNormZeroOnChipKernel,
        "ada_layer_norm_zero_streaming": AdaLayerNormZeroStreamingKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "ada_layer_norm_zero": AdaLayerNormZeroFwdInterface
    }

    eps: float

    def __init__(self, eps: float = 1e-6, *, target: str | None = None) -> None:
        self.eps = eps
        super().__init__(target=target)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        gate: torch.Tensor,
        scale: torch.Tensor,
        shift: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = contiguous(x, residual, gate, scale, shift)
        call = LayerNormCall(
            device=x.device,
            n=x.shape[-1],
            eps=self.eps,
            dtype=x.dtype,
            aligned=start_aligned(*tensors),
        )
        y, added = self.kernel_for("ada_layer_norm_zero", call)(*tensors)
        return y, added
