"""SinusoidalFwdOp: the table of sinusoidal position embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from tileops.core import Kernel, KernelInterface, Op
from tileops.positional.sinusoidal.kernels import (
    SinusoidalCall,
    SinusoidalFwdInterface,
    SinusoidalKernel,
)

__all__ = ["SinusoidalFwdOp"]


class SinusoidalFwdOp(Op):
    """Sinusoidal position embeddings (https://arxiv.org/abs/1706.03762, section 3.5).

    ``table[i, 2 k] = sin(i / base ** (2 k / d_model))``, and ``table[i, 2 k + 1]`` its cosine. Not
    interleaved, ``table[i, k]`` is the sine and ``table[i, d_model / 2 + k]`` the cosine, as in
    Marian's models. Angles are exact to 2**-32 and ``i * 2**-54`` of a turn (base at least 1), and
    the result is rounded once to ``dtype``.

    Args:
        seq_len: positions, from 0.
        d_model: the size of an embedding, even.
        base: the longest wavelength over 2 pi.
        interleaved: whether sines and cosines take turns, rather than the halves of a row.
        dtype: float32, float16 or bfloat16.
        device: where the table is made; None is PyTorch's default device at the call.
        target: the name of the target to serve the calls; None chooses by device.

    Call:
        ``op()`` returns the table, ``[seq_len, d_model]``, in new memory each time. The op has no
        operator: a compiled call is plain PyTorch, and the table is fused into what adds it.

    Raises:
        ParamError: a constructor parameter is not what the entry needs, or the device is not here.
        TargetError: the target cannot serve the call; an explicit one other than ``reference``
            serves no call that is traced.
    """

    kernel_types: ClassVar[Mapping[str, type[Kernel]]] = {"sinusoidal": SinusoidalKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {
        "sinusoidal": SinusoidalFwdInterface
    }

    seq_len: int
    d_model: int
    base: float
    interleaved: bool
    dtype: torch.dtype
    device: torch.device | None

    def __init__(
        self,
        seq_len: int,
        d_model: int,
        base: float = 10000.0,
        *,
        interleaved: bool = True,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        target: str | None = None,
    ) -> None:
        self.seq_len = seq_len
        self.d_model = d_model
        self.base = base
        self.interleaved = interleaved
        self.dtype = dtype
        self.device = device  # type: ignore[assignment]  # made canonical below
        super().__init__(target=target)

    def forward(self) -> torch.Tensor:
        call = SinusoidalCall(
            self.output_device(),
            self.dtype,
            self.seq_len,
            self.d_model,
            self.base,
            self.interleaved,
        )
        table: torch.Tensor = self.kernel_for("sinusoidal", call)()
        return table
