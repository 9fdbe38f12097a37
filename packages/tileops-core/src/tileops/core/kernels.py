"""The kernel seam: call specs, interfaces, kernels, and the programs built for them.

An op's ``forward`` asks for a kernel of a role (an *interface*) for one *call spec* and launches
it. Which kernel that is, and whether it must be built, is decided here and in the target; neither
the op nor its compile boundary knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Protocol

import torch

from tileops.core.programs import iter_programs, program_for

__all__ = ["CallSpec", "Kernel", "KernelInterface", "fills", "iter_programs", "program_for"]


class CallSpec(Protocol):
    """What a kernel is chosen by: frozen, hashable, and with the device of the call.

    A call spec holds what kernels are chosen by and nothing that varies from call to call: a
    dynamic size stays out of it.
    """

    @property
    def device(self) -> torch.device: ...

    def __hash__(self) -> int: ...


class Kernel:
    """One in-tree implementation of an interface.

    An instance is bound to a call spec and to the program built for it, and is called with the
    interface's inputs and then its outputs, which it fills.
    """

    fills_outputs: ClassVar[bool] = True
    _defined: ClassVar[float]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The store takes a kernel's programs only where its files are older than what was imported.
        cls._defined = time.time()

    def __init__(self, call: Any, program: Any) -> None:
        self.call = call
        self.program = program

    @classmethod
    def entry_for(cls, call: Any) -> tuple[Hashable, Callable[[], Any]]:
        """The build's identity and the function that builds.

        The identity holds all that the build depends on and no more; the device only where the
        build depends on it. Programs are stored under it, so it holds what has a text of its own:
        numbers, strings, dtypes, enumerations, and tuples and frozen dataclasses of these. The
        sources of the kernel's whole top-level package are part of the stored program's key.

        Raises:
            TargetError: this kernel cannot serve the call; the message says why.
        """
        raise NotImplementedError(f"{cls.__name__} does not say how it is built: define entry_for")

    def prepare(self, *tensors: torch.Tensor | None) -> Callable[..., None]:
        """What launches this kernel for tensors of the same shapes, dtypes and devices as these.

        A warm call uses it, so whatever those settle is worked out here; by default, nothing.
        """
        return self

    def __call__(self, *tensors: torch.Tensor | None) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} does not say how it is launched: define __call__"
        )


class KernelInterface:
    """The role of a kernel: which tensors it takes and fills, who is chosen, and the reference.

    ``inputs`` and ``outputs`` name the entry's tensors in the order in which a kernel takes them.
    An output is allocated by core from the entry's signature before the kernel runs.
    """

    inputs: ClassVar[tuple[str, ...]]
    outputs: ClassVar[tuple[str, ...]]

    @classmethod
    def select(cls, call: Any, kernel_types: Mapping[str, type[Kernel]]) -> type[Kernel]:
        """The kernel, among the op's ``kernel_types``, that serves ``call`` best."""
        raise NotImplementedError(f"{cls.__name__} does not choose a kernel: define select")

    @classmethod
    def reference(cls, call: Any, *inputs: torch.Tensor | None) -> Any:
        """The interface's formula in plain PyTorch: returns the outputs, newly allocated."""
        raise NotImplementedError(f"{cls.__name__} has no reference: define reference")


def fills(kernel: Callable[..., None]) -> Callable[..., None]:
    """Marks a target's kernel as one that fills outputs which core allocated.

    It is called with the interface's inputs and then its outputs, as in-tree kernels are. A
    kernel without this mark takes the inputs and returns outputs that it allocated itself; each
    of its results is checked at every call.
    """
    kernel.fills_outputs = True  # type: ignore[attr-defined]
    return kernel
