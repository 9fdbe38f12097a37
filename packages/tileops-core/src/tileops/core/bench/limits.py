"""The least time of a call on this machine: its bytes and flops over ceilings measured here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import torch

from tileops.core.bench.timers import CpuTimer, CudaTimer
from tileops.manifest.calls import Call

__all__ = ["Ceilings", "Limit", "limit_of", "matrix_dtype", "measure_ceilings"]

MATRIX_DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """What the machine reached.

    Attributes:
        bandwidth: bytes a second, read and written, of a large copy or of adding 1 to it.
        rates: flops a second of a large matrix product, by dtype.
    """

    bandwidth: float
    rates: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Limit:
    """The least time of a call and what sets it, ``"memory"`` or ``"matrix"``."""

    seconds: float
    bound: str


def matrix_dtype(call: Call) -> str | None:
    """The dtype whose matrix rate limits the call: its first floating input's, where measured."""
    for facts in call.inputs.values():
        if facts is not None and facts.dtype in MATRIX_DTYPES:
            return facts.dtype
    return None


def measure_ceilings(
    timer: CpuTimer | CudaTimer,
    device: torch.device,
    dtypes: Iterable[str],
    *,
    size: int | None = None,
    rounds: int = 5,
) -> Ceilings:
    """Times a copy of ``size`` bytes and, for each dtype, a product of square matrices as large.

    The best of some rounds counts: a limit is what the machine can do. By default a copy of 1 GiB
    and products of 8192 rows on a card, 64 MiB and 1024 rows on a CPU. The copy is made by
    ``copy_`` and by ``add``, and the faster one counts: in a CUDA graph, ``copy_`` between
    contiguous tensors is a memory-copy node, which reached 2.77 TB/s on an H200 where kernels
    reached 4.3.
    """
    cuda = device.type == "cuda"
    measure = timer.measures[0]
    nbytes = size or (2**30 if cuda else 2**26)
    rows = round((nbytes / (16 if cuda else 64)) ** 0.5)
    source = torch.randn(nbytes // 4, device=device)
    target = torch.empty_like(source)
    ways = [
        functools.partial(target.copy_, source),
        functools.partial(torch.add, source, 1, out=target),
    ]
    samples = [timer.sampler(measure, [way]) for way in ways]
    bandwidth = 2 * source.nbytes / min(sample() for sample in samples for _ in range(rounds))
    del source, target, ways, samples
    rates = {}
    for name in dtypes:
        left, right = (
            torch.randn(rows, rows, device=device).to(getattr(torch, name)) for _ in range(2)
        )
        product = torch.empty_like(left)
        multiply = functools.partial(torch.mm, left, right, out=product)
        sample = timer.sampler(measure, [multiply])
        rates[name] = 2 * rows**3 / min(sample() for _ in range(rounds))
    return Ceilings(bandwidth, rates)


def limit_of(flops: int, nbytes: int, dtype: str | None, ceilings: Ceilings) -> Limit:
    """The larger of the two least times; by bytes alone where the dtype's rate is not known."""
    memory = nbytes / ceilings.bandwidth
    rate = ceilings.rates.get(dtype) if dtype is not None else None
    matrix = flops / rate if rate else 0.0
    return Limit(memory, "memory") if memory >= matrix else Limit(matrix, "matrix")
