"""Other ways to the same results: PyTorch's own operators, which a family registers.

A family calls :func:`register_baseline` beside its compile cases, in the module that its entry
point of the group ``tileops.contracts`` names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tileops.core.errors import DefinitionError
from tileops.core.op import Op

__all__ = ["Baseline", "baselines_of", "by_cudnn", "register_baseline"]


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A function that computes what an op computes.

    Attributes:
        op: the op's class.
        function: takes the op, whose params it reads, and the call's arguments by name; returns
            the outputs in order, and writes what the op writes.
        name: what reports call it; ``torch`` is PyTorch's own operator called eagerly, which
            ``inductor`` compiles.
        devices: the kinds of device that it runs on; None is all.
    """

    op: type[Op]
    function: Callable[..., Any]
    name: str = "torch"
    devices: tuple[str, ...] | None = None


_registered: dict[tuple[str, str], Baseline] = {}


def register_baseline(baseline: Baseline) -> Baseline:
    """Adds ``baseline``; the same again replaces it where the module was reloaded.

    Raises:
        DefinitionError: its name means something else in reports, or is taken.
    """
    op = baseline.op
    if baseline.name in ("tileops", "inductor"):
        raise DefinitionError(
            f"a baseline of {op.__name__} cannot be named {baseline.name!r}: reports use the name"
        )
    key = (f"{op.__module__}.{op.__qualname__}", baseline.name)
    held = _registered.get(key)
    if held is not None and held.function.__module__ != baseline.function.__module__:
        raise DefinitionError(
            f"{op.__name__} has a baseline {baseline.name!r} of {held.function.__module__} "
            f"already; give the one of {baseline.function.__module__} another name"
        )
    _registered[key] = baseline
    return baseline


def by_cudnn(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with every ``scaled_dot_product_attention`` in it served by cuDNN, or refused.

    PyTorch raises where cuDNN does not take the call: on CPUs, in float32.
    """

    def call(*given: Any, **named: Any) -> Any:
        # Not above: a family's contracts are imported where nothing is measured.
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return function(*given, **named)

    return call


def baselines_of(op: type[Op]) -> list[Baseline]:
    """The op's baselines, in the order of registration."""
    return [baseline for baseline in _registered.values() if baseline.op is op]
