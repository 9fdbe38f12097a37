"""ALiBi's kernel: how the program is built and launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch

from tileops.core import Kernel, KernelInterface
from tileops.core.dtypes import dtype_name
from tileops.core.errors import TargetError
from tileops.core.tilelang_backend import Program, build, device_arch, launcher
from tileops.positional.alibi import programs
from tileops.positional.alibi.configs import choose_config
from tileops.positional.alibi.reference import alibi_reference

__all__ = ["AlibiCall", "AlibiFwdInterface", "AlibiKernel"]


@dataclasses.dataclass(frozen=True)
class AlibiCall:
    """The whole call; ``device`` is None where dynamo traces, for PyTorch's default device."""

    device: torch.device | None
    dtype: torch.dtype
    num_heads: int
    seq_len: int


class AlibiFwdInterface(KernelInterface):
    """``() -> bias``, which is contiguous."""

    inputs = ()
    outputs = ("bias",)

    @classmethod
    def select(cls, call: AlibiCall, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        return kernel_types["alibi"]

    @classmethod
    def reference(cls, call: AlibiCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        return alibi_reference(call.num_heads, call.seq_len, call.dtype, call.device)


class AlibiKernel(Kernel):
    """Fills the table; heads and length are dynamic, but for what they say of the layout."""

    call: AlibiCall

    @classmethod
    def entry_for(cls, call: AlibiCall) -> tuple[Hashable, Callable[[], Program]]:
        dtype, arch = dtype_name(call.dtype), device_arch(call.device)
        if call.num_heads * call.seq_len >= 2**31:
            raise TargetError(
                f"AlibiFwdOp: the target 'tilelang' makes tables of fewer than 2**31 rows, and "
                f"{call.num_heads} heads of {call.seq_len} have more; use target='reference'"
            )
        config = choose_config(call.num_heads, call.seq_len, dtype)

        def build_program() -> Program:
            return build(lambda: programs.alibi(dtype, config), arch=arch)

        return (dtype, config, arch), build_program

    def __call__(self, *tensors: Any) -> None:
        self.prepare(*tensors)(*tensors)

    def prepare(self, *tensors: Any) -> Callable[..., None]:
        (bias,) = tensors
        heads, seq_len = self.call.num_heads, self.call.seq_len
        config = choose_config(heads, seq_len, dtype_name(self.call.dtype))
        accesses = config.rows * seq_len // config.vector
        across = -(-accesses // config.threads)
        groups = -(-heads * seq_len // (config.rows * config.bands))
        power = 1 << (heads.bit_length() - 1)
        numbers = {
            "seq_len": seq_len,
            "total": heads * seq_len,
            "accesses": accesses,
            "across": across,
            "blocks": groups * across,
            "power": power,
            "step": -4 / power,
        }
        return launcher(self.program.launch, bias.device.index, ["0", *numbers], numbers)
