"""The fused kernel: how the program is built for a call, and launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch

from tileops.core import Kernel, KernelInterface
from tileops.core.dtypes import dtype_name
from tileops.core.tilelang_backend import Program, build, device_arch, launcher
from tileops.positional.angles import device_turns, turns
from tileops.positional.fused_qk_norm_rope import programs
from tileops.positional.fused_qk_norm_rope.configs import FusedShape, choose_config
from tileops.positional.fused_qk_norm_rope.reference import normalized_and_rotated
from tileops.positional.rope.frequencies import Rotation
from tileops.positional.rope.reference import angles_of, cached_angles, place_of

__all__ = ["FusedQKNormRoPECall", "FusedQKNormRoPEInterface", "FusedQKNormRoPEKernel"]


@dataclasses.dataclass(frozen=True)
class FusedQKNormRoPECall:
    """What the kernel is chosen by; the number of tokens is dynamic.

    ``rotation`` is None where ``cache_dtype`` is that of a table of cosines and sines.
    ``alignment`` is the greatest power of two up to 16 of which the start of qkv and of both
    weights, in bytes, is a multiple.
    """

    device: torch.device
    dtype: torch.dtype
    weight_dtype: torch.dtype
    heads_q: int
    heads_k: int
    heads_v: int
    head_dim: int
    eps: float
    rotary_dim: int
    interleaved: bool
    inplace: bool
    positions_dtype: torch.dtype | None
    rotation: Rotation | None
    cache_dtype: torch.dtype | None
    alignment: int

    def shape(self) -> FusedShape:
        """What the program is made for."""
        return FusedShape(
            dtype=dtype_name(self.dtype),
            weight_dtype=dtype_name(self.weight_dtype),
            heads_q=self.heads_q,
            heads_k=self.heads_k,
            heads_v=self.heads_v,
            head_dim=self.head_dim,
            rotary_dim=self.rotary_dim,
            interleaved=self.interleaved,
            inplace=self.inplace,
            positions=None if self.positions_dtype is None else dtype_name(self.positions_dtype),
            cache=None if self.cache_dtype is None else dtype_name(self.cache_dtype),
        )


class FusedQKNormRoPEInterface(KernelInterface):
    """``(qkv, q_weight, k_weight, position_ids, cos_sin_cache) -> qkv_out``, all contiguous."""

    inputs = ("qkv", "q_weight", "k_weight", "position_ids", "cos_sin_cache")
    outputs = ("qkv_out",)

    @classmethod
    def select(
        cls, call: FusedQKNormRoPECall, kernel_types: Mapping[str, type[Kernel]]
    ) -> type[Kernel]:
        return kernel_types["fused_qk_norm_rope"]

    @classmethod
    def reference(cls, call: FusedQKNormRoPECall, *inputs: torch.Tensor | None) -> torch.Tensor:
        qkv, q_weight, k_weight, position_ids, cache = inputs
        if qkv is None or q_weight is None or k_weight is None:
            raise ValueError("qkv or a weight is None")
        position = place_of(qkv.shape[-2], position_ids, qkv.device)
        if call.rotation is not None:
            cos, sin = angles_of(call.rotation, position)
        elif cache is not None:
            cos, sin = cached_angles(cache, position)
        else:
            raise ValueError("the call has neither frequencies nor a cache")
        out = qkv if call.inplace else qkv.clone(memory_format=torch.contiguous_format)
        heads = out.unflatten(-1, (-1, call.head_dim))
        first, second = call.heads_q, call.heads_q + call.heads_k
        for part, weight in (
            (heads[..., :first, :], q_weight),
            (heads[..., first:second, :], k_weight),
        ):
            part.copy_(normalized_and_rotated(part, weight, call.eps, cos, sin, call.interleaved))
        return out


class FusedQKNormRoPEKernel(Kernel):
    """One pass over the packed heads."""

    call: FusedQKNormRoPECall

    @classmethod
    def entry_for(cls, call: FusedQKNormRoPECall) -> tuple[Hashable, Callable[[], Program]]:
        shape, arch = call.shape(), device_arch(call.device)
        config = choose_config(shape, call.alignment)

        def build_program() -> Program:
            return build(lambda: programs.fused_qk_norm_rope(shape, config), arch=arch)

        return (shape, config, arch), build_program

    def __call__(self, *tensors: Any) -> None:
        self.prepare(*tensors)(*tensors)

    def prepare(self, *tensors: Any) -> Callable[..., None]:
        call = self.call
        qkv, _, _, position_ids, cache, _ = tensors
        tokens = qkv.numel() // qkv.shape[-1]
        period = qkv.shape[-2] if position_ids is None or position_ids.dim() == 1 else tokens
        numbers = {"none": 0, "count": tokens, "period": period, "length": 0, "eps": call.eps}
        words = ["0", "1", "2", "5", "none" if position_ids is None else "3", "4"]
        if call.rotation is not None:
            words[5] = "table"
            table = device_turns(tuple(turns(call.rotation.frequencies)), call.device)
            numbers["table"] = table.data_ptr()
        else:
            numbers["length"] = cache.shape[0]
        words += ["count", "period", "length", "eps"]
        return launcher(self.program.launch, call.device.index, words, numbers)
