"""AdaLayerNormFwdOp: layer normalization that each sample scales and shifts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.norm.ada_layer_norm.kernels import (
    AdaLayerNormKernel,
    AdaLayerNormOnChipKernel,
    AdaLayerNormStreamingKernel,
)
from tileops.norm.ada_layer_norm.reference import ada_layer_norm_reference
from tileops.norm.arguments import contiguous
from tileops.norm.rows.call import LayerNormCall, start_aligned
from tileops.norm.rows.kernels import RowsInterface
from tileops.norm.rows.ops import ADA_LAYER_NORM

__all__ = ["AdaLayerNormFwdInterface", "AdaLayerNormFwdOp"]


class AdaLayerNormFwdInterface(RowsInterface):
    """``(x, scale, shift) -> y``: x and y are contiguous [B, S, N]; of the rows of scale and
    shift there is one a sample or one a token."""

    row_op = ADA_LAYER_NORM

    @classmethod
    def reference(cls, call: LayerNormCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        x, scale, shift = inputs
        assert x is not None
        assert scale is not None
        assert shift is not None
        return ada_layer_norm_reference(x, scale, shift, call.eps)


class AdaLayerNormFwdOp(Op):
    """Adaptive layer normalization of diffusion transformers (https://arxiv.org/abs/2212.09748).

    ``y = (x - mean) / sqrt(var + eps) * (1 + scale) + shift``, mean and biased variance over the
    last axis. All of it is computed in float32 and rounded once, to ``x``'s dtype; written with
    PyTorch's operators in half precision, each step would round.

    Args:
        eps: added to the variance.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(x, scale, shift)``, all of one dtype, float16, bfloat16 or float32. ``x`` is
        ``[B, S, N]``; ``scale`` and ``shift`` are each ``[B, N]``, a row a sample, or
        ``[B, S, N]``, a row a token. Returns ``y``, ``[B, S, N]``, contiguous. Chunks of one
        projection, ``projection.chunk(6, dim=-1)``, are no rows that follow each other and are
        copied.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "ada_layer_norm": AdaLayerNormKernel,
        "ada_layer_norm_on_chip": AdaLayerNormOnChipKernel,
        "ada_layer_norm_streaming": AdaLayerNormStreamingKernel,
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "ada_layer_norm": AdaLayerNormFwdInterface
    }

    eps: float

    def __init__(self, eps: float = 1e-6, *, target: str | None = None) -> None:
        self.eps = eps
        super().__init__(target=target)

    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        tensors = contiguous(x, scale, shift)
        call = LayerNormCall(
            device=x.device,
            n=x.shape[-1],
            eps=self.eps,
            dtype=x.dtype,
            aligned=start_aligned(*tensors),
        )
        y: torch.Tensor = self.kernel_for("ada_layer_norm", call)(*tensors)
        return y
