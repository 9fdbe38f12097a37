"""Plans: what a call of known metadata does, with everything settled that can be.

A plan is made after a call went well, and is found again by the tensors' shapes, dtypes, devices,
and whether all of them are contiguous and start on 16 bytes. Where ``forward`` did nothing but
launch one kernel with the call's own tensors and return what it filled, the plan allocates the
outputs and launches that kernel; ``forward`` chooses by metadata and params alone, so running it
again would do the same. Otherwise the plan runs ``forward``, and leaves out the checks only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch

__all__ = ["Launch", "Plan", "allocation", "replay"]

Plan = Callable[..., Any]
"""Called with the op and the operator's arguments; returns what the operator returns."""


class Spec(Protocol):
    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...


class Launch(NamedTuple):
    """One kernel launched by ``forward``: with these inputs, filling these outputs by name."""

    kernel: Callable[..., Any]
    inputs: tuple[torch.Tensor | None, ...]
    names: tuple[str, ...]
    outputs: tuple[torch.Tensor, ...]


def replay(
    launches: Sequence[Launch],
    arguments: Sequence[Any],
    specs: Mapping[str, Spec],
    buffers: Mapping[str, torch.Tensor],
    returned: Sequence[str],
    results: Mapping[str, torch.Tensor],
    written: Sequence[torch.Tensor],
) -> Plan | None:
    """The plan that repeats ``launches``, or None where ``forward`` did more than one launch."""
    if len(launches) != 1:
        return None
    launch = launches[0]
    positions = []
    for tensor in launch.inputs:
        found = [n for n, argument in enumerate(arguments) if argument is tensor]
        if not found:
            return None
        positions.append(found[0])
    filled = dict(zip(launch.names, launch.outputs, strict=True))
    # A buffer of the caller's is what it is, whether or not the kernel takes it as an output.
    if any(t is not filled.get(name) and t is not buffers.get(name) for name, t in results.items()):
        return None
    outputs: list[int | str] = []
    for name in launch.names:
        if name in buffers:
            found = [n for n, argument in enumerate(arguments) if argument is buffers[name]]
            if not found:
                return None
            outputs.append(found[0])
        else:
            outputs.append(name)
    prepare = getattr(launch.kernel, "prepare", None)
    kernel = launch.kernel if prepare is None else prepare(*launch.inputs, *launch.outputs)
    dirty = [n for n, argument in enumerate(arguments) if any(argument is w for w in written)]
    make = _maker(len(arguments), tuple(positions), tuple(outputs), tuple(returned), tuple(dirty))
    made = [part for name in outputs if isinstance(name, str) for part in allocation(specs[name])]
    return make(kernel, torch.autograd.graph.increment_version, *made)


Allocation = tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...], torch.dtype]


def allocation(spec: Spec) -> Allocation:
    """The function that allocates one output, and its arguments: shape, strides and dtype."""
    shape, strides = tuple(map(int, spec.shape)), _contiguous_strides(spec.shape)
    dtype, device = spec.dtype, spec.device
    # Inductor's own allocator takes half the time of torch.empty_strided. It allocates on the
    # current device, so it serves only where there is no other.
    guards = torch._C._dynamo.guards
    quick = getattr(guards, f"_empty_strided_{device.type}", None)
    if quick is not None and (device.type == "cpu" or torch.cuda.device_count() == 1):
        return quick, shape, strides, dtype

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty, shape, strides, dtype


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(int(size), 1) for size in shape[n + 1 :]) for n in range(len(shape)))


@functools.cache
def _maker(
    count: int,
    inputs: tuple[int, ...],
    outputs: tuple[int | str, ...],
    returned: tuple[str, ...],
    dirty: tuple[int, ...],
) -> Callable[..., Plan]:
    """A function that makes plans of one structure: written out, so that a warm call loops over
    nothing."""
    allocated = [name for name in outputs if isinstance(name, str)]
    arguments = ", ".join(f"a{n}" for n in range(count))
    words = [f"a{n}" for n in inputs]
    words += [f"o_{item}" if isinstance(item, str) else f"a{item}" for item in outputs]
    makers = ["kernel", "increment_version"]
    makers += [
        f"{part}_{name}" for name in allocated for part in ("new", "shape", "strides", "dtype")
    ]
    lines = [f"def make({', '.join(makers)}):"]
    lines += [f"    def plan(op, {arguments}):"]
    lines += [
        f"        o_{name} = new_{name}(shape_{name}, strides_{name}, dtype_{name})"
        for name in allocated
    ]
    lines += [f"        kernel({', '.join(words)})"]
    lines += [f"        increment_version(a{n})" for n in dirty]
    result = ", ".join(f"o_{name}" for name in returned)
    lines += [f"        return {result if len(returned) < 2 else f'({result})'}".rstrip()]
    lines += ["    return plan"]
    namespace: dict[str, Any] = {}
    exec("\n".join(lines), namespace)
    made: Callable[..., Plan] = namespace["make"]
    return made
