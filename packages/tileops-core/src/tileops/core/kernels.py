"""The kernel seam: call specs, interfaces, kernels, and the programs built for them.

An op's ``forward`` asks for a kernel of a role (an *interface*) for one *call spec* and launches
it. Which kernel that is, and whether it must be built, is decided here and in the target; neither
the op nor its compile boundary knows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

import torch

from tileops.core.errors import CaptureError, KernelBuildError, TargetError

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

    def __init__(self, call: Any, program: Any) -> None:
        self.call = call
        self.program = program

    @classmethod
    def entry_for(cls, call: Any) -> tuple[Hashable, Callable[[], Any]]:
        """The build's identity and the function that builds.

        The identity holds all that the build depends on and no more; the device only where the
        build depends on it.

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


_programs: dict[Hashable, Any] = {}
_building: dict[Hashable, threading.Lock] = {}
_lock = threading.Lock()


def program_for(
    identity: Hashable, build: Callable[[], Any], *, device: torch.device, op: str, shape: str
) -> Any:
    """The program of ``identity``, built once in this process however many threads ask for it.

    The build runs with ``device`` current. ``op`` and ``shape`` are named by errors.

    Raises:
        CaptureError: the program would have to be built while a CUDA graph is captured.
        KernelBuildError: the build failed; nothing is kept of it.
    """
    program = _programs.get(identity)
    if program is not None:
        return program
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise CaptureError(
            f"{op}: no kernel is built for {shape}, and none can be built while a CUDA graph is "
            f"captured; call the op once with tensors of this shape before the capture, then "
            f"capture again"
        )
    with _lock:
        lock = _building.setdefault(identity, threading.Lock())
    try:
        with lock:
            program = _programs.get(identity)
            if program is None:
                with _current(device):
                    program = _programs[identity] = build()
            return program
    except (CaptureError, TargetError):
        raise
    except Exception as error:
        raise KernelBuildError(
            f"{op}: the kernel for {shape} could not be built: {error}"
        ) from error
    finally:
        with _lock:
            _building.pop(identity, None)


def iter_programs() -> Iterator[tuple[Hashable, Any]]:
    """The programs built in this process, with their identities."""
    return iter(list(_programs.items()))


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
