"""Calls of ops that are made of other ops: checked, then traced down to the sub-ops' nodes.

A composite has no operator. Its generated ``__call__`` runs the checks of the entry and
``forward``, and a compiler traces both: each sub-op with a boundary becomes a node, and the plain
PyTorch between them is the compiler's to fuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tileops.core.errors import TargetError
from tileops.core.instances import live
from tileops.core.targets import default_target, resolve
from tileops.core.watch import traces

if TYPE_CHECKING:
    from tileops.core.op import Op
    from tileops.manifest import Entry

__all__ = ["call_composite", "is_composite", "parts_keys", "sub_ops"]


def is_composite(entry: Entry) -> bool:
    """Whether ops of ``entry`` are made of others, and take tensors whose metadata is checked."""
    return bool(entry.composition and entry.signature.inputs)


def call_composite(op: Op, *inputs: torch.Tensor | None, **named: Any) -> Any:
    """``forward`` of a checked call, with autocast off.

    Sub-ops run with it off by themselves, and results have the entry's dtypes, not autocast's.

    Raises:
        TargetError: the target of this first call is not the one that its shared sub-ops have.
    """
    first = next(tensor for tensor in inputs if tensor is not None)
    device, target, fault = first.device, None, None
    # The first of these is folded by dynamo. What follows reads no param and no state: a guard on
    # what each of thirty-two equal composites has of its own would give each a graph of its own.
    plain = (torch.Tensor, torch.nn.Parameter)
    if torch.compiler.is_dynamo_compiling() or type(first) not in plain or traces():
        under = op._shared_under
        fault = _fault_of_default(type(op).__name__, op._part_keys, device, under)
    elif device.type != "meta" and device not in op._state.targets:
        target = resolve(type(op).__name__, op._wanted_target, device)
        fault = _fault(type(op).__name__, op._part_keys, device, target.name)
    if fault is not None:
        raise TargetError(fault)
    if target is None:
        return _forward(op, device, *inputs, **named)
    from tileops.core.warm_up import unchanged_on_failure

    # What served a part of a call that fails would be held against every equal op's next call.
    with unchanged_on_failure(op):
        result = _forward(op, device, *inputs, **named)
    op._state.targets[device] = target
    return result


def _forward(op: Op, device: torch.device, *inputs: torch.Tensor | None, **named: Any) -> Any:
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False):
            return op.forward(*inputs, **named)
    return op.forward(*inputs, **named)


def _fault_of_default(
    name: str, keys: tuple[str, ...], device: torch.device, under: str | None
) -> str | None:
    """As :func:`_fault`, of a traced call, which resolves no target: a default that is set holds.

    Dynamo calls it while it traces, and raises what it says by itself: an exception from in here
    would be a fault of dynamo's.
    """
    default = under or default_target()
    return None if default is None else _fault(name, keys, device, default)


# As torch.compiler.assume_constant_result, without importing dynamo.
_fault_of_default._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _fault(name: str, keys: tuple[str, ...], device: torch.device, target: str) -> str | None:
    """What to say where another than ``target`` has served a shared sub-op on ``device``."""
    for key in keys:
        reference = live.get(key)
        part = None if reference is None else reference()
        served = None if part is None else part._state.targets.get(device)
        if served is not None and served.name != target:
            return (
                f"{name}: its calls on {device} are to be served by the target {target!r}, but "
                f"{type(part).__name__} in it, which equal ops share, is served by "
                f"{served.name!r} there since its first call; build the {name} while {target!r} "
                f"is the default, or with target={target!r}"
            )
    return None


def parts_keys(part: Op) -> tuple[str, ...]:
    """The keys of ``part`` and of its own sub-ops, of those whose target a default decides."""
    return (*_key_of(part), *part._part_keys)


def _key_of(part: Op) -> tuple[str, ...]:
    return () if part._explicit_target is not None else (part._key,)


def sub_ops(op: Op) -> list[Op]:
    """The ops that ``op`` holds as attributes, and those that these hold, each once."""
    from tileops.core.op import Op

    found: list[Op] = []
    waiting = [op]
    while waiting:
        for value in vars(waiting.pop()).values():
            for part in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(part, Op) and part is not op and part not in found:
                    found.append(part)
                    waiting.append(part)
    return found
