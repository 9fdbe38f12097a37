"""The sinusoidal table's kernel: how the program is built and launched."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch

from tileops.core import Kernel, KernelInterface
from tileops.core.dtypes import dtype_name
from tileops.core.tilelang_backend import Program, build, device_arch, launcher
from tileops.positional.angles import device_turns, float_turns, turns
from tileops.positional.sinusoidal.configs import ShortConfig, SinusoidalConfig, choose_config
from tileops.positional.sinusoidal.programs import any_size, short
from tileops.positional.sinusoidal.reference import sinusoidal_reference

__all__ = ["SinusoidalCall", "SinusoidalFwdInterface", "SinusoidalKernel", "factors"]


@dataclasses.dataclass(frozen=True)
class SinusoidalCall:
    """The whole call; ``device`` is None where dynamo traces, for PyTorch's default device."""

    device: torch.device | None
    dtype: torch.dtype
    seq_len: int
    d_model: int
    base: float
    interleaved: bool


class SinusoidalFwdInterface(KernelInterface):
    """``() -> table``, which is contiguous."""

    inputs = ()
    outputs = ("table",)

    @classmethod
    def select(cls, call: SinusoidalCall, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        return kernel_types["sinusoidal"]

    @classmethod
    def reference(cls, call: SinusoidalCall, *inputs: torch.Tensor | None) -> torch.Tensor:
        return sinusoidal_reference(
            call.seq_len, call.d_model, call.base, call.interleaved, call.dtype, call.device
        )


class SinusoidalKernel(Kernel):
    """Fills the table; both of its sizes are dynamic, but for what they say of the layout."""

    call: SinusoidalCall

    @classmethod
    def entry_for(cls, call: SinusoidalCall) -> tuple[Hashable, Callable[[], Program]]:
        dtype, arch = dtype_name(call.dtype), device_arch(call.device)
        interleaved = call.interleaved
        config = _config_of(call)

        def build_program() -> Program:
            if isinstance(config, ShortConfig):
                make = short.factored_sinusoidal if config.bits else short.short_sinusoidal
                return build(
                    lambda: make(dtype, interleaved, config),
                    arch=arch,
                    pass_configs=short.SHORT_PASS_CONFIGS,
                )
            return build(lambda: any_size.sinusoidal(dtype, interleaved, config), arch=arch)

        return (dtype, interleaved, config, arch), build_program

    def __call__(self, *tensors: Any) -> None:
        self.prepare(*tensors)(*tensors)

    def prepare(self, *tensors: Any) -> Callable[..., None]:
        (table,) = tensors
        call = self.call
        config = _config_of(call)
        width = call.d_model if call.interleaved else call.d_model // 2
        accesses = width // config.vector
        numbers: dict[str, float] = {"seq_len": call.seq_len}
        if isinstance(config, ShortConfig):
            numbers |= {
                "accesses": accesses,
                "groups": -(-call.seq_len // (config.rows * config.lines)),
                "across": -(-accesses // config.columns),
            }
            if config.bits:
                numbers |= factors(call.base, call.d_model)
            else:
                words = tuple(float_turns(_frequencies(call)))
                read = device_turns(words, table.device, torch.float64)
                numbers = {"turns": read.data_ptr()} | numbers
        else:
            across = -(-accesses // config.threads)
            blocks = -(-call.seq_len // config.rows) * across
            read = device_turns(tuple(turns(_frequencies(call))), table.device)
            numbers = {"turns": read.data_ptr()} | numbers
            numbers |= {"d_model": call.d_model, "across": across, "blocks": blocks}
        return launcher(self.program.launch, table.device.index, ["0", *numbers], numbers)


def factors(base: float, d_model: int) -> dict[str, float]:
    """What the factored program makes frequencies of, in turns a position: see there.

    A factor of a bit that no pair's index has may be 0.
    """
    powers = {f"r{bit}": base ** (-(2.0 ** (bit + 1)) / d_model) for bit in range(10)}
    return {"scale": 1 / (2 * math.pi)} | powers


def _frequencies(call: SinusoidalCall) -> list[float]:
    return [call.base ** (-2 * k / call.d_model) for k in range(call.d_model // 2)]


def _config_of(call: SinusoidalCall) -> SinusoidalConfig | ShortConfig:
    dtype = dtype_name(call.dtype)
    return choose_config(call.seq_len, call.d_model, call.interleaved, dtype, call.base)
