"""The rotary kernels: how the program is built for a call, and launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import torch

from tileops.core import Kernel, KernelInterface
from tileops.core.dtypes import dtype_name
from tileops.core.tilelang_backend import Program, build, device_arch, launcher
from tileops.positional.angles import device_turns, turns
from tileops.positional.rope import programs
from tileops.positional.rope.configs import RotaryShape, choose_config
from tileops.positional.rope.frequencies import Rotation
from tileops.positional.rope.reference import angles_of, cached_angles, place_of, rotated

__all__ = [
    "RoPECacheInterface",
    "RoPECacheQueryInterface",
    "RoPECall",
    "RoPEInterface",
    "RoPEKernel",
    "RoPEQueryInterface",
]


@dataclasses.dataclass(frozen=True)
class RoPECall:
    """What a rotary kernel is chosen by; the number of tokens is dynamic.

    ``rotation`` is None where ``cache_dtype`` is that of a table of cosines and sines.
    ``alignment`` is the greatest power of two up to 16 that all of q and k start at a multiple of,
    in bytes.
    """

    device: torch.device
    dtype: torch.dtype
    heads_q: int
    heads_k: int
    head_dim: int
    rotary_dim: int
    interleaved: bool
    inplace: bool
    positions_dtype: torch.dtype | None
    rotation: Rotation | None
    cache_dtype: torch.dtype | None
    alignment: int

    def shape(self) -> RotaryShape:
        """What the program is made for."""
        return RotaryShape(
            dtype=dtype_name(self.dtype),
            heads_q=self.heads_q,
            heads_k=self.heads_k,
            head_dim=self.head_dim,
            rotary_dim=self.rotary_dim,
            interleaved=self.interleaved,
            copies_rest=not self.inplace and self.rotary_dim < self.head_dim,
            positions=None if self.positions_dtype is None else dtype_name(self.positions_dtype),
            cache=None if self.cache_dtype is None else dtype_name(self.cache_dtype),
            sectioned=self.rotation is not None and self.rotation.rows is not None,
        )


class RoPEInterface(KernelInterface):
    """``(q, k, position_ids) -> (q_out, k_out)``: contiguous; in place, the results are q and k."""

    inputs: ClassVar[tuple[str, ...]] = ("q", "k", "position_ids")
    outputs: ClassVar[tuple[str, ...]] = ("q_out", "k_out")

    @classmethod
    def select(cls, call: RoPECall, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        return kernel_types["rope"]

    @classmethod
    def reference(cls, call: RoPECall, *inputs: torch.Tensor | None) -> Any:
        q, k, position_ids, *cache = inputs
        if q is None:
            raise ValueError("q is None")
        position = place_of(q.shape[-3], position_ids, q.device)
        if call.rotation is not None:
            cos, sin = angles_of(call.rotation, position)
        elif cache and cache[0] is not None:
            cos, sin = cached_angles(cache[0], position)
        else:
            raise ValueError("the call has neither frequencies nor a cache")
        results = [
            rotated(x, cos, sin, call.interleaved, call.inplace) for x in (q, k) if x is not None
        ]
        return results[0] if k is None else tuple(results)


class RoPEQueryInterface(RoPEInterface):
    """The same without k: ``(q, None, position_ids) -> q_out``."""

    outputs = ("q_out",)


class RoPECacheInterface(RoPEInterface):
    """``(q, k, position_ids, cos_sin_cache) -> (q_out, k_out)``, as above."""

    inputs = ("q", "k", "position_ids", "cos_sin_cache")


class RoPECacheQueryInterface(RoPECacheInterface):
    """The same without k."""

    outputs = ("q_out",)


class RoPEKernel(Kernel):
    """Rotates queries and keys in one launch."""

    call: RoPECall

    @classmethod
    def entry_for(cls, call: RoPECall) -> tuple[Hashable, Callable[[], Program]]:
        shape, arch = call.shape(), device_arch(call.device)
        config = choose_config(shape, call.alignment)

        def build_program() -> Program:
            return build(lambda: programs.rope(shape, config), arch=arch)

        return (shape, config, arch), build_program

    def __call__(self, *tensors: Any) -> None:
        self.prepare(*tensors)(*tensors)

    def prepare(self, *tensors: Any) -> Callable[..., None]:
        call = self.call
        q, k, position_ids = tensors[:3]
        tokens = q.numel() // (call.heads_q * call.head_dim) if call.heads_q else 0
        if not tokens and k is not None:
            tokens = k.numel() // (call.heads_k * call.head_dim)
        # Position ids of one sequence are everybody's; those of all tokens, with rows before, not.
        period = q.shape[-3] if position_ids is None or position_ids.dim() == 1 else tokens
        outputs = 3 if call.cache_dtype is None else 4
        numbers = {"none": 0, "count": tokens, "period": period, "length": 0, "scale": 1.0}
        words = ["0", "none", str(outputs), "none", "none", "table"]
        if k is not None:
            words[1], words[3] = "1", str(outputs + 1)
        if position_ids is not None:
            words[4] = "2"
        if call.rotation is not None:
            numbers["table"] = _table(call.rotation, call.device).data_ptr()
            numbers["scale"] = call.rotation.scale
        else:
            words[5] = "3"
            numbers["length"] = tensors[3].shape[0]
        words += ["count", "period", "length", "scale"]
        return launcher(self.program.launch, call.device.index, words, numbers)


def _table(rotation: Rotation, device: torch.device) -> torch.Tensor:
    """The frequencies, and each one's row of the position ids behind them, on ``device``."""
    return device_turns((*turns(rotation.frequencies), *(rotation.rows or ())), device)
