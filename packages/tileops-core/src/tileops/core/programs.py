"""Programs: each is built once in a process, and once for all processes that share a store."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from tileops.core.builds import note_present, noting
from tileops.core.compilers import NoCompilerError
from tileops.core.errors import CaptureError, KernelBuildError, TargetError, TileOpsError
from tileops.core.locks import ForkSafeLock

if TYPE_CHECKING:
    from tileops.core.kernels import Kernel

__all__ = ["MOST_PROGRAMS", "iter_programs", "program_for"]

MOST_PROGRAMS = 1024
"""Programs that are found again without the store; beyond it the one that was asked for longest ago
is forgotten. Kernels that hold it go on; a new one loads it from the store."""

_log = logging.getLogger("tileops.core.store")


class _Flight:
    """One build that threads wait for: there while any of them is."""

    __slots__ = ("__weakref__", "lock", "owner")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None


_programs: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()
_flights: weakref.WeakValueDictionary[Hashable, _Flight] = weakref.WeakValueDictionary()
_lock = ForkSafeLock()


def _forget_flights() -> None:
    # A child that was forked during a build would wait for a thread that it does not have.
    global _flights
    _flights = weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_forget_flights)


def program_for(
    identity: Hashable,
    build: Callable[[], Any],
    *,
    device: torch.device,
    op: str,
    shape: str,
    kernel: type[Kernel] | None = None,
) -> Any:
    """The program of ``identity``, built once however many threads and processes ask for it.

    It is looked for in memory, then in the store, and built last, with ``device`` current.
    ``kernel`` is the class whose ``entry_for`` gave the identity: without it, or where the program
    has no ``export``, the store takes no part. ``op`` and ``shape`` are named by errors.

    Raises:
        CaptureError: the program would have to be loaded or built while a CUDA graph is captured.
        DefinitionError: ``identity`` has no text that is the same in every process.
        KernelBuildError: the build failed; nothing is kept of it.
    """
    spelling: Hashable = identity
    if kernel is not None:
        from tileops.core.store.key import spell_identity

        spelling = spell_identity(kernel, identity)
    key = (kernel, spelling)
    if (found := _find(key)) is not None:
        note_present(op, shape, identity)
        return found
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise CaptureError(
            f"{op}: no kernel is built for {shape}, and none can be built while a CUDA graph is "
            f"captured; call the op once with tensors of this shape before the capture, then "
            f"capture again"
        )
    with _lock:
        flight = _flights.get(key)
        if flight is None:
            flight = _flights[key] = _Flight()
    if flight.owner == threading.get_ident():
        raise KernelBuildError(f"{op}: the kernel for {shape} needs itself to be built")
    with flight.lock:
        if (found := _find(key)) is not None:
            note_present(op, shape, identity)
            return found
        flight.owner = threading.get_ident()
        try:
            with _current(device), noting(op, shape, identity, build) as noticed:
                program = _load_or_build(key, noticed)
                if program is None:
                    raise KernelBuildError("the build returned None, and no program")
        except (CaptureError, TargetError):
            raise
        except NoCompilerError as error:
            raise _nowhere(op, shape, error) from error
        except Exception as error:
            # Ours say what they are; of others the name may be all that they say.
            reason = str(error)
            if not isinstance(error, TileOpsError):
                reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise KernelBuildError(
                f"{op}: the kernel for {shape} could not be built: {reason}"
            ) from error
        finally:
            flight.owner = None
        with _lock:
            _programs[key] = (identity, program)
            while len(_programs) > MOST_PROGRAMS:
                _programs.popitem(last=False)
        return program


def iter_programs() -> Iterator[tuple[Hashable, Any]]:
    """The programs in this process's memory, with the identities that their kernels gave."""
    with _lock:
        return iter(list(_programs.values()))


def _find(key: Hashable) -> Any:
    with _lock:
        found = _programs.get(key)
        if found is None:
            return None
        _programs.move_to_end(key)
        return found[1]


def _load_or_build(key: tuple[type[Kernel] | None, Any], build: Callable[[], Any]) -> Any:
    # Here and not above: the store imports the module of the builds, which no warm call needs.
    from tileops.core.store import open_store
    from tileops.core.store.key import UnkeyedError, key_text

    kernel, spelling = key
    store = None if kernel is None else open_store()
    if kernel is None or store is None:
        return build()
    try:
        text = key_text(kernel, spelling)
    except UnkeyedError as error:
        _log.warning("%s is kept out of the store: %s", kernel.__qualname__, error)
        return build()
    program = store.get(text, report=False)
    if program is not None:
        return program
    with store.lock(text):
        program = store.get(text)
        if program is None:
            program = build()
            if hasattr(program, "export"):
                store.put(text, program)
        return program


def _nowhere(op: str, shape: str, error: NoCompilerError) -> KernelBuildError:
    from tileops.core.store import default_folder

    folder = default_folder()
    stored = "the store is off" if folder is None else f"none is stored in {folder}"
    return KernelBuildError(
        f"{op}: the kernel for {shape} cannot be built here and is not stored: {error}; {stored}. "
        f"Run `tileops build` on a machine that has nvcc and let TILEOPS_CACHE_DIR name the folder "
        f"that it filled, or use target='reference'"
    )


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
