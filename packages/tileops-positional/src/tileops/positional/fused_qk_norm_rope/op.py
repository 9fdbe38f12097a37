"""FusedQKNormRoPEFwdOp: RMSNorm of each query and key head, then rotary embedding, in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.positional.alignment import alignment_of
from tileops.positional.fused_qk_norm_rope.kernels import (
    FusedQKNormRoPECall,
    FusedQKNormRoPEInterface,
    FusedQKNormRoPEKernel,
)
from tileops.positional.rope.cache import require_positions
from tileops.positional.rope.frequencies import Rotation, default_rotation, finite_rotation

__all__ = ["FusedQKNormRoPEFwdOp"]


class FusedQKNormRoPEFwdOp(Op):
    """RMSNorm of each query and key head, then rotary embedding, over packed qkv.

    As the attention of Qwen3 begins: each head x of q and of k becomes ``rope(x / sqrt(mean(x**2) +
    eps) * weight)``, with q's weight or k's; the values stay as they are. The rotation is
    :class:`RoPEFwdOp`'s, or by a table of cosines and sines that of :class:`RoPECacheFwdOp`, which
    also says what a position out of the table gives. All of it is float32, rounded once: layers
    that round the normalized head before its rotation differ by that rounding.

    Args:
        num_heads_q: query heads.
        num_heads_k: key heads.
        num_heads_v: value heads.
        head_dim: the size of a head, even.
        eps: added to the mean square.
        rotary_dim: how much of a head is rotated, from its start, even; None is all of it, or what
            the table has.
        base: the longest wavelength over 2 pi (rope_theta); a table stands in its place.
        interleaved: whether neighbours make a pair (GPT-J) rather than the two halves (NeoX).
        check_positions: whether a position out of the table raises; that reads the positions, so it
            waits for the device at each call, and cannot be captured in a CUDA graph.
        inplace: whether qkv is written, and returned, rather than a new tensor.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op(qkv, q_weight, k_weight, position_ids=None, cos_sin_cache=None)``. ``qkv`` is ``[*B, S,
        (num_heads_q + num_heads_k + num_heads_v) * head_dim]``, float16, bfloat16 or float32: the
        queries of a token, its keys, its values. The weights are ``[head_dim]`` of qkv's dtype, or
        float32; ``position_ids`` are int64 or int32, ``[S]`` for all sequences or ``[*B, S]``, and
        None counts from 0; ``cos_sin_cache`` is ``[L, R]`` of any of the floating dtypes. Returns
        the same as qkv with its queries and keys normalized and rotated.

    Raises:
        ParamError: a constructor parameter is not what the entry needs.
        ArgumentError: a tensor is not, or with ``check_positions`` a position is out of the table.
        ValuesReadError: positions would have to be checked while a CUDA graph is captured.
        TargetError: the target cannot serve the call.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {
        "fused_qk_norm_rope": FusedQKNormRoPEKernel
    }
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "fused_qk_norm_rope": FusedQKNormRoPEInterface
    }

    num_heads_q: int
    num_heads_k: int
    num_heads_v: int
    head_dim: int
    eps: float
    rotary_dim: int | None
    base: float
    interleaved: bool
    check_positions: bool
    inplace: bool

    def __init__(
        self,
        num_heads_q: int,
        num_heads_k: int,
        num_heads_v: int,
        head_dim: int,
        eps: float = 1e-6,
        rotary_dim: int | None = None,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        check_positions: bool = False,
        inplace: bool = False,
        target: str | None = None,
    ) -> None:
        self.num_heads_q = num_heads_q
        self.num_heads_k = num_heads_k
        self.num_heads_v = num_heads_v
        self.head_dim = head_dim
        self.eps = eps
        self.rotary_dim = rotary_dim
        self.base = base
        self.interleaved = interleaved
        self.check_positions = check_positions
        self.inplace = inplace
        super().__init__(target=target)

    def forward(
        self,
        qkv: torch.Tensor,
        q_weight: torch.Tensor,
        k_weight: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        cos_sin_cache: torch.Tensor | None = None,
    ) -> torch.Tensor:
        qkv, q_weight, k_weight = qkv.contiguous(), q_weight.contiguous(), k_weight.contiguous()
        position_ids = None if position_ids is None else position_ids.contiguous()
        if cos_sin_cache is None:
            rotary_dim = self.head_dim if self.rotary_dim is None else self.rotary_dim
            rotation = finite_rotation(self, self.rotation, rotary_dim)
        else:
            cos_sin_cache, rotation = cos_sin_cache.contiguous(), None
            rows, rotary_dim = cos_sin_cache.shape
            if self.check_positions:
                require_positions(self, position_ids, qkv.shape[-2], rows)
        call = FusedQKNormRoPECall(
            device=qkv.device,
            dtype=qkv.dtype,
            weight_dtype=q_weight.dtype,
            heads_q=self.num_heads_q,
            heads_k=self.num_heads_k,
            heads_v=self.num_heads_v,
            head_dim=self.head_dim,
            eps=self.eps,
            rotary_dim=rotary_dim,
            interleaved=self.interleaved,
            inplace=self.inplace,
            positions_dtype=None if position_ids is None else position_ids.dtype,
            rotation=rotation,
            cache_dtype=None if cos_sin_cache is None else cos_sin_cache.dtype,
            alignment=alignment_of(qkv, q_weight, k_weight),
        )
        kernel = self.kernel_for("fused_qk_norm_rope", call)
        out: torch.Tensor = kernel(qkv, q_weight, k_weight, position_ids, cos_sin_cache)
        return out

    def rotation(self, rotary_dim: int) -> Rotation:
        """The frequencies of the pairs of ``rotary_dim`` elements."""
        return default_rotation(rotary_dim, self.base)
