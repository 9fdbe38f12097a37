"""Warming an op: its calls are made once, ahead, so that no request waits for a build."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tileops.core.builds import BUILT, LOADED, ProgramUse, collecting
from tileops.core.composite import sub_ops
from tileops.core.dtypes import dtype_name
from tileops.core.errors import ArgumentError, CaptureError
from tileops.core.instances import not_traced

if TYPE_CHECKING:
    from tileops.core.op import Op

__all__ = ["WarmCall", "WarmUpReport", "unchanged_on_failure", "warm_up"]


@dataclasses.dataclass(frozen=True)
class WarmCall:
    """One call that was made to warm an op.

    ``arguments`` describes its arguments, ``target`` is what served it, ``seconds`` the whole
    call's. ``programs`` are those that it asked for; the kernels that the instance had already ask
    for none.
    """

    arguments: str
    target: str | None
    programs: tuple[ProgramUse, ...]
    seconds: float

    def __str__(self) -> str:
        found = [str(use) for use in self.programs] or ["nothing to build"]
        return f"{self.arguments}: {self.target}, {self.seconds:.2f} s; {'; '.join(found)}"


@dataclasses.dataclass(frozen=True)
class WarmUpReport:
    """What ``op.warm_up`` did: ``calls``, in order. As text, a line for the op and for each."""

    op: str
    calls: tuple[WarmCall, ...]

    @property
    def built(self) -> int:
        """Programs that were built now."""
        return self._count(BUILT)

    @property
    def loaded(self) -> int:
        """Programs that were loaded from the store."""
        return self._count(LOADED)

    @property
    def seconds(self) -> float:
        """What all calls took."""
        return sum(call.seconds for call in self.calls)

    def _count(self, origin: str) -> int:
        return sum(use.origin == origin for call in self.calls for use in call.programs)

    def __str__(self) -> str:
        head = (
            f"{self.op}: {len(self.calls)} calls warm in {self.seconds:.2f} s, {self.built} "
            f"programs built, {self.loaded} loaded from the store"
        )
        return "\n".join([head, *(f"  {call}" for call in self.calls)])


def warm_up(
    op: Op,
    examples: Sequence[Any],
    named: Mapping[str, Any],
    device: torch.device | str | int | None,
) -> WarmUpReport:
    """Makes each call that the examples describe; see :meth:`Op.warm_up`.

    Raises:
        ArgumentError: an example is none, or no valid call.
        CaptureError: a CUDA graph is being captured.
    """
    bound = inspect.signature(op.forward).bind(*examples, **named)
    given = dict(bound.arguments)
    where = _device(op, given.values(), device)
    if where is not None and _capturing(where):
        raise CaptureError(
            f"{type(op).__name__}: warm_up allocates and synchronizes, which cannot be done while "
            f"a CUDA graph is captured; warm up before the capture"
        )
    if where is not None:
        _require(op, where)
    calls = []
    with unchanged_on_failure(op), torch.inference_mode(False), torch.no_grad():
        for example in _each(op, given):
            bound.arguments.update(
                {name: _real(op, name, value, where) for name, value in example.items()}
            )
            calls.append(_call(op, bound, where))
    return WarmUpReport(type(op).__name__, tuple(calls))


not_traced(
    warm_up,
    "an op is warmed up inside compiled code; warm it up once outside, before the first request",
)


def _call(op: Op, bound: inspect.BoundArguments, where: torch.device | None) -> WarmCall:
    start = time.perf_counter()
    with collecting() as uses:
        op(*bound.args, **bound.kwargs)
    if where is not None and where.type == "cuda":
        # What goes wrong on the device shows here, and the seconds are all of them.
        torch.cuda.synchronize(where)
    seconds = time.perf_counter() - start
    text = ", ".join(f"{name}: {_described(value)}" for name, value in bound.arguments.items())
    return WarmCall(text, op.serving_target, tuple(uses), seconds)


@contextlib.contextmanager
def unchanged_on_failure(op: Op) -> Iterator[None]:
    ops = (op, *sub_ops(op))
    before: list[tuple[dict[Any, Any], set[Any]]] = [
        (kept, set(kept))
        for one in ops
        for kept in (one._state.targets, one._state.kernels, one._plans)
    ]
    served_by = [one._state.served_by for one in ops]
    try:
        yield
    except BaseException:
        for found, keys in before:
            for key in set(found) - keys:
                found.pop(key, None)
        for one, name in zip(ops, served_by, strict=True):
            one._state.served_by = name
        raise


def _device(op: Op, values: Any, device: torch.device | str | int | None) -> torch.device | None:
    """Where the calls are: as given, else that of the first example that is somewhere."""
    if device is not None:
        try:
            return torch.device(device)
        except (RuntimeError, TypeError):
            raise ArgumentError(
                f"{type(op).__name__}: warm_up was given device={device!r}, which is no device here"
            ) from None
    for value in values:
        if isinstance(value, torch.Tensor) and value.device.type != "meta":
            return value.device
    if any(isinstance(value, (torch.Tensor, tuple)) for value in values):
        raise ArgumentError(
            f"{type(op).__name__}: warm_up was given shapes and no device; say where the calls "
            f'will be, as in device="cuda"'
        )
    return None


def _capturing(device: torch.device) -> bool:
    try:
        return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    except RuntimeError:
        return False  # PyTorch has no CUDA here


def _require(op: Op, device: torch.device) -> None:
    """Requires that calls can be made on ``device``.

    Raises:
        ArgumentError: it is not here, or it is the meta device.
    """
    if device.type == "meta":
        raise ArgumentError(
            f"{type(op).__name__}: calls on the meta device compute and build nothing; say where "
            f'the calls will be, as in device="cuda"'
        )
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ArgumentError(
            f"{type(op).__name__}: no call can be warmed on {device}: {error}"
        ) from error


def _each(op: Op, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One example after the other: the lists in ``given`` go together, first with first."""
    lengths = {len(item) for value in given.values() for item in _lists(value)}
    if len(lengths) > 1:
        counts = " and ".join(map(str, sorted(lengths)))
        raise ArgumentError(
            f"{type(op).__name__}: warm_up was given lists of {counts} sizes; lists go together, "
            f"the first size of one with the first of each other"
        )
    if 0 in lengths:
        raise ArgumentError(
            f"{type(op).__name__}: warm_up was given a list of no sizes, which warms nothing"
        )
    for number in range(lengths.pop() if lengths else 1):
        yield {name: _pick(value, number) for name, value in given.items()}


def _lists(value: Any) -> Iterator[Sequence[int]]:
    if _is_sizes(value):
        yield value
    elif _is_pair(value):
        yield from filter(_is_sizes, value[0])


def _pick(value: Any, number: int) -> Any:
    if _is_sizes(value):
        return value[number]
    if _is_pair(value):
        shape = [size[number] if _is_sizes(size) else size for size in value[0]]
        return tuple(shape), value[1]
    return value


def _is_sizes(value: Any) -> bool:
    return isinstance(value, (list, range))


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], (tuple, list))
        and isinstance(value[1], torch.dtype)
    )


def _real(op: Op, name: str, value: Any, device: torch.device | None) -> Any:
    """The argument of the call for one example."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            return _laid_out(tuple(value.shape), value.stride(), value.dtype, device, 0)
        return _copy(value) if _may_be_written(op, name) else value
    if _is_pair(value) and all(type(size) is int and size >= 0 for size in value[0]):
        return torch.zeros(value[0], dtype=value[1], device=device)
    raise ArgumentError(
        f"{type(op).__name__}: warm_up needs for {name} a tensor, or its shape and dtype as in "
        f"((8, 4096), torch.float16), and got {value!r}"
    )


def _may_be_written(op: Op, name: str) -> bool:
    return name == "out" or any(name in branch.written for branch in type(op).entry.branches)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and the same start relative to 16 bytes.

    Both decide which kernel serves, and which plan is kept.
    """
    start = tensor.data_ptr() % 16
    made = _laid_out(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, start)
    return made.copy_(tensor)


def _laid_out(
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | None,
    start: int,
) -> torch.Tensor:
    first = start // dtype.itemsize
    span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = torch.zeros(first + span, dtype=dtype, device=device)
    return memory.as_strided(shape, strides, first)


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    dtype = dtype_name(value.dtype)
    return f"{dtype}{list(value.shape)} on {value.device}"
