"""The two targets that serve the ops of ``effect_ops`` besides ``reference``.

``filling`` has kernels that fill outputs which core allocated, so that warm calls replay plans;
the results of ``liar`` are what a test chooses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from tileops.core import Op, Target, fills, register_target
from tileops.core.targets import unregister_target


@dataclasses.dataclass(frozen=True)
class Call:
    """The call spec of all of them: what the formula reads besides the tensors."""

    device: torch.device
    options: tuple[Any, ...] = ()


def _filling_kernel(op: Op, interface: str, call: Call) -> Callable[..., Any]:
    role = op.interfaces[interface]

    @fills
    def launch(*tensors: torch.Tensor | None) -> None:
        count = len(role.inputs)
        launches.append(type(op).__name__)
        results = role.reference(call, *tensors[:count])
        many = results if isinstance(results, tuple) else (results,)
        for buffer, result in zip(tensors[count:], many, strict=False):
            if buffer is not None and buffer is not result:
                buffer.copy_(result)

    return launch


launches: list[str] = []
"""The op of each kernel that ``filling`` launched."""


class Liar:
    """What the target ``liar`` does: ``act`` takes a kernel's inputs and gives its results."""

    act: Callable[..., Any]


liar = Liar()

FILLING = Target("filling", lambda device: False, _filling_kernel)
LIAR = Target("liar", lambda device: False, lambda *_: lambda *inputs: liar.act(*inputs))


def register_targets() -> None:
    for target in (FILLING, LIAR):
        register_target(target)


def unregister_targets() -> None:
    for target in (FILLING, LIAR):
        unregister_target(target.name)
