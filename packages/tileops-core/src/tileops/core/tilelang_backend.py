"""Builds TileLang programs and gives back the cheapest way to launch them.

This module is the only place that relies on what TileLang 0.1.15 and TVM-FFI do not document: how
to get at a compiled program's entry function, how an exported library is loaded without TileLang,
and how the launch stream is set. TileLang is imported by the first build, never before.

**The launch ABI.** A program takes tensors as *addresses* (``int64``, from ``Tensor.data_ptr()``)
and sizes and numbers as scalars, and makes its buffers of them with
``T.make_tensor_from_addr``. So a tensor of any rank launches without a view, the generated host
stub checks nothing but the argument count and kinds, and no DLPack exchange happens. What the
stub of a tensor argument would have checked (shape, dtype, device, contiguity) is the caller's
duty. So are the device and the stream, which a tensor argument would have carried:
:func:`launcher` wraps an entry so that it runs on PyTorch's current stream of one device.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib.util
import logging
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileops.core.compilers import NoCompilerError, missing_compilers
from tileops.core.errors import KernelBuildError

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)

#: ``device_type`` of CUDA in DLPack, which TVM-FFI's stream table is keyed on.
_DLPACK_CUDA = 2

#: Architectures whose newest instructions need the "a" variant of the target.
_ARCH_SPECIFIC = {90: "sm_90a", 100: "sm_100a", 103: "sm_103a", 120: "sm_120a"}


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        symbol: the name of the entry function, which :func:`load` asks for.
        launch: the entry function itself, called with the program's parameters in order. It
            launches on the current device and on the stream that TVM-FFI holds for it: see
            :func:`launcher`.
        source: the CUDA source that was compiled.
    """

    symbol: str
    launch: Callable[..., None]
    source: str
    _write: Callable[[str], Any]

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write a shared library that :func:`load` opens in a process without TileLang."""
        self._write(os.fspath(path))


def build(
    prim_func_factory: Callable[[], Any],
    *,
    arch: str,
    pass_configs: Mapping[str, Any] | None = None,
) -> Program:
    """Compile the program that ``prim_func_factory`` makes, for one architecture.

    The factory is called after TileLang was imported and silenced. No GPU is needed, only nvcc.

    Args:
        prim_func_factory: returns a ``PrimFunc``.
        arch: the architecture as nvcc names it: ``"sm_80"``, ``"sm_90a"``.
        pass_configs: switches of TileLang's compiler passes, by their names there.

    Raises:
        NoCompilerError: it went wrong on a machine that lacks a compiler.
        KernelBuildError: whatever else went wrong, with the cause chained.
    """
    try:
        tilelang = _tilelang()
        prim_func = prim_func_factory()
        symbol = str(prim_func.attrs["global_symbol"])
        kernel = tilelang.compile(
            prim_func,
            target={"kind": "cuda", "arch": arch},
            execution_backend="tvm_ffi",
            pass_configs=dict(pass_configs or {}),
        )
        entry = kernel.adapter.get_exportable_executable()[symbol]
        source = kernel.get_kernel_source()
    except Exception as error:
        # Afterwards: what TileLang's own cache holds needs no compiler.
        if lacking := missing_compilers():
            raise NoCompilerError("; ".join(lacking)) from error
        name = getattr(prim_func_factory, "__name__", repr(prim_func_factory))
        raise KernelBuildError(f"building {name} for {arch} failed: {error}") from error
    return Program(symbol=symbol, launch=entry, source=source, _write=kernel.export_library)


def load(
    path: str | os.PathLike[str], symbol: str, data: bytes | None = None
) -> Callable[..., None]:
    """Open a library that :meth:`Program.export` wrote; imports TVM-FFI but not TileLang.

    The returned entry function is what :attr:`Program.launch` was. ``data``, where the caller has
    them already, are the file's bytes.
    """
    import tvm_ffi  # libtvm_ffi.so, which TileLang's libraries need, comes with it

    _load_library("libtvm_runtime.so")
    if _needs_tilelang(pathlib.Path(path).read_bytes() if data is None else data):
        _load_library("libtilelang.so")
    return tvm_ffi.load_module(os.fspath(path))[symbol]


def _needs_tilelang(library: bytes) -> bool:
    """Whether an exported library may ask for a function that only ``libtilelang.so`` registers.

    Host code finds such functions (TMA descriptors, the errors of tensor arguments) by names that
    stand in the library. One name in doubt is enough to load it, which takes 25 to 40 ms from
    memory, and as long again as its 100 MB take from a cold disk.
    """
    return re.search(rb"__tvm_(?!ffi_)|tilelang_error", library) is not None


def launcher(
    entry: Callable[..., None],
    index: int,
    words: Sequence[str],
    numbers: Mapping[str, float],
    *,
    workspace: int = 0,
) -> Callable[..., None]:
    """A function of tensors that launches ``entry`` on the current stream of device ``index``.

    ``words`` are the entry's parameters in order: ``"0"`` stands for the address of the first
    tensor that the function is called with, and so on; ``"workspace"`` for the address of
    ``workspace`` bytes that hold anything, which each launch allocates; any other word is a key of
    ``numbers``.

    A launch synchronises nothing and allocates at most its workspace, from PyTorch's caching
    allocator and on the stream that it launches on, so that the memory may go back when the launch
    is enqueued. So it may be captured in a CUDA graph once it has been called before (the first
    call on a device loads the program's module). Another current device is switched to for the
    launch, and restored.
    """
    import torch

    only_device = torch.cuda.device_count() == 1
    make = _launcher_maker(tuple(words), tuple(numbers), workspace > 0, only_device)
    return make(entry, index, (workspace,), *numbers.values())


@functools.cache
def _launcher_maker(
    words: tuple[str, ...], numbers: tuple[str, ...], has_workspace: bool, only_device: bool
) -> Callable[..., Callable[..., None]]:
    """Makes launchers of one kind: written out, since a warm call pays for each further frame."""
    import torch
    from tvm_ffi.core import _env_set_current_stream

    count = 1 + max(int(word) for word in words if word.isdecimal())
    tensors = ", ".join(f"t{n}" for n in range(count))
    # Prefixed, since a parameter of a program may be called as anything here is.
    given = ", ".join(f"t{w}.data_ptr()" if w.isdecimal() else f"given_{w}" for w in words)
    allocate = "space = empty(size, (1,), bytes); given_workspace = space.data_ptr()"
    allocate = allocate if has_workspace else "pass"
    # TVM-FFI keeps one stream per thread and device. Callers that pass it tensors set and restore
    # theirs around each call, so leaving ours behind disturbs none of them.
    source = f"""
def make(entry, index, size, {", ".join(f"given_{name}" for name in numbers)}):
    def launch({tensors}):
        set_stream({_DLPACK_CUDA}, index, current_stream(index))
        {allocate}
        entry({given})

    def launch_there({tensors}):
        if current_device() == index:
            return launch({tensors})
        with on_device(index):
            return launch({tensors})

    return {"launch" if only_device else "launch_there"}
"""
    namespace: dict[str, Any] = {
        "set_stream": _env_set_current_stream,
        "current_stream": torch._C._cuda_getCurrentRawStream,
        "current_device": torch._C._cuda_getDevice,
        "on_device": torch.cuda.device,
        # On the current device, which is the launch's; see tileops.core.plans.allocation.
        "empty": torch._C._dynamo.guards._empty_strided_cuda,  # type: ignore[attr-defined]
        "bytes": torch.uint8,
    }
    exec(source, namespace)
    made: Callable[..., Callable[..., None]] = namespace["make"]
    return made


_assumed: ContextVar[str | None] = ContextVar("assumed_arch", default=None)


@contextlib.contextmanager
def assume_arch(arch: str) -> Iterator[None]:
    """Inside, :func:`device_arch` answers ``arch`` for any device: kernels are chosen and built
    as they would be there."""
    token = _assumed.set(arch)
    try:
        yield
    finally:
        _assumed.reset(token)


def device_arch(device: "torch.device | int | str | None" = None) -> str:
    """The architecture of a CUDA device, as :func:`build` takes it: ``"sm_80"``, ``"sm_90a"``."""
    assumed = _assumed.get()
    if assumed is not None:
        return assumed
    import torch

    return arch_of_capability(*torch.cuda.get_device_capability(device))


def arch_of_capability(major: int, minor: int) -> str:
    """The architecture of a compute capability: (8, 9) is ``"sm_89"``, (9, 0) ``"sm_90a"``."""
    number = major * 10 + minor
    return _ARCH_SPECIFIC.get(number, f"sm_{number}")


def checked_arch(text: str) -> str:
    """``text``, where :func:`device_arch` may answer it.

    Raises:
        ValueError: no device's kernels are looked up under it.
    """
    found = re.fullmatch(r"sm_(\d+)(\d)([a-z]?)", text)
    if found is None:
        raise ValueError(f"{text!r} is no architecture; they are written as sm_80 or sm_90a")
    known = arch_of_capability(int(found[1]), int(found[2]))
    if text != known:
        raise ValueError(f"kernels are built for {known}, not for {text!r}")
    return text


@functools.cache
def _tilelang() -> Any:
    """TileLang, imported without the lines that it prints at every compilation."""
    os.environ.setdefault("TILELANG_PRINT_ON_COMPILATION", "0")
    _give_tilelang_a_folder()
    import tilelang

    tilelang.set_log_level("ERROR")
    return tilelang


def _give_tilelang_a_folder() -> None:
    """Set ``TILELANG_CACHE_DIR`` to a temporary folder where TileLang's own cannot be written.

    TileLang keeps a cache of its own, and its import and its builds fail without it. A process
    whose home is read-only could build nothing, for a cache that the store makes needless.
    """
    folder = pathlib.Path(os.environ.get("TILELANG_CACHE_DIR", "~/.tilelang/cache")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        temporary = tempfile.mkdtemp(prefix="tileops-tilelang-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        os.environ["TILELANG_CACHE_DIR"] = temporary
        _log.warning("TileLang's cache is %s until this process ends: %s", temporary, error)


@functools.cache
def _load_library(name: str) -> None:
    """Load, once and globally, one of the libraries that a program's symbols resolve to."""
    spec = importlib.util.find_spec("tilelang")
    if spec is None or spec.origin is None:
        raise ImportError("a stored kernel needs TileLang's runtime libraries: install tilelang")
    ctypes.CDLL(str(pathlib.Path(spec.origin).parent / "lib" / name), mode=ctypes.RTLD_GLOBAL)
