"""What the rotary ops share: the call that each of them comes down to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.positional.alignment import alignment_of
from tileops.positional.rope.frequencies import Rotation, finite_rotation, require_finite
from tileops.positional.rope.kernels import (
    RoPECacheInterface,
    RoPECacheQueryInterface,
    RoPECall,
    RoPEInterface,
    RoPEKernel,
    RoPEQueryInterface,
)

__all__ = ["RotaryOp", "ScaledRotaryOp"]


class RotaryOp(Op, abstract=True):
    """An op that rotates queries, and keys where there are any."""

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {"rope": RoPEKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "rope": RoPEInterface,
        "rope_query": RoPEQueryInterface,
        "rope_cache": RoPECacheInterface,
        "rope_cache_query": RoPECacheQueryInterface,
    }

    interleaved: bool
    inplace: bool

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)
        require_finite(self)

    def _rotate(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        rotary_dim: int,
        *,
        rotation: Rotation | None = None,
        cache: torch.Tensor | None = None,
    ) -> Any:
        """Rotates by the frequencies of ``rotation``, or by ``cache``."""
        q = q.contiguous()
        k = None if k is None else k.contiguous()
        position_ids = None if position_ids is None else position_ids.contiguous()
        call = RoPECall(
            device=q.device,
            dtype=q.dtype,
            heads_q=q.shape[-2],
            heads_k=0 if k is None else k.shape[-2],
            head_dim=q.shape[-1],
            rotary_dim=rotary_dim,
            interleaved=self.interleaved,
            inplace=self.inplace,
            positions_dtype=None if position_ids is None else position_ids.dtype,
            rotation=rotation,
            cache_dtype=None if cache is None else cache.dtype,
            alignment=alignment_of(q, k),
        )
        role = "rope" if cache is None else "rope_cache"
        tables = () if cache is None else (cache.contiguous(),)
        kernel = self.kernel_for(role if k is not None else f"{role}_query", call)
        return kernel(q, k, position_ids, *tables)


class ScaledRotaryOp(RotaryOp, abstract=True):
    """A rotary op whose frequencies its params say."""

    rotary_dim: int | None

    def rotation(self, rotary_dim: int) -> Rotation:
        """The frequencies of the pairs of ``rotary_dim`` elements; each op defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not say its frequencies")

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> Any:
        rotary_dim = q.shape[-1] if self.rotary_dim is None else self.rotary_dim
        rotation = finite_rotation(self, self.rotation, rotary_dim)
        return self._rotate(q, k, position_ids, rotary_dim, rotation=rotation)
