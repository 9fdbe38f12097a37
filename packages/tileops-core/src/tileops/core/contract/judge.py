"""What results are held to: the fake's metadata, another run's values, and the float64 formula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tileops.core.contract.subject import Ran, Subject
from tileops.core.dtypes import dtype_name
from tileops.core.errors import ContractError
from tileops.core.testing import to_float64
from tileops.manifest import Entry

__all__ = ["disagreement", "require_alike", "require_equal", "require_true"]

_PYTORCHS = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}
"""``torch.testing.assert_close``'s own, for a written input that no output is: entries give
tolerances of outputs."""


def tolerance_of(entry: Entry, name: str, dtype: torch.dtype) -> tuple[float, float] | None:
    """``rtol`` and ``atol`` of an output, or of an input that is written; None where it is exact.

    Raises:
        ContractError: the entry has none for a floating-point output.
    """
    text = dtype_name(dtype)
    names = {name, *(o.name for o in entry.signature.outputs if o.alias == name)}
    for tolerance in entry.tolerances:
        if tolerance.output in names and tolerance.dtype == text:
            return tolerance.rtol, tolerance.atol
    if not dtype.is_floating_point:
        return None
    if names.isdisjoint(o.name for o in entry.signature.outputs) and text in _PYTORCHS:
        return _PYTORCHS[text]
    raise ContractError(f"the entry has no tolerance for {name} in {text}")


def disagreement(value: Any, right: Any, tolerance: tuple[float, float] | None) -> str:
    """What is wrong with ``value``, "" if nothing; NaN agrees with NaN."""
    if tuple(value.shape) != tuple(right.shape):
        return f"has shape {list(value.shape)}, and {list(right.shape)} is right"
    rtol, atol = tolerance or (0.0, 0.0)
    value, right = to_float64(value), to_float64(right)
    if not value.is_complex():
        value, right = value.double(), right.double()
    same = (value == right) | (value.isnan() & right.isnan())
    # Written so that a NaN is wrong.
    wrong = ~(same | ((value - right).abs() <= atol + rtol * right.abs()))
    if not bool(wrong.any()):
        return ""
    place = tuple(int(i) for i in wrong.nonzero()[0])
    allowed = atol + rtol * float(right[place].abs())
    within = f" to within {allowed:.3g}" if tolerance is not None else ""
    return (
        f"has {int(wrong.sum())} of {wrong.numel()} values wrong, the first at {list(place)}: "
        f"{_number(value[place])}, and {_number(right[place])} is right{within}"
    )


def _number(value: torch.Tensor) -> str:
    return f"{value.item():.9g}"


def _layout(tensor: torch.Tensor, strides_count: bool) -> str:
    """What a compiler relies on; strides of a dim of size 0 or 1 say nothing."""
    facts = f"{dtype_name(tensor.dtype)}{list(tensor.shape)} on {tensor.device}"
    if tensor.numel() == 0 or not strides_count:
        return facts
    strides = [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]
    return f"{facts} with strides {strides}"


def require_alike(
    results: Mapping[str, Any], wanted: Mapping[str, Any], whose: str, strides_count: bool = True
) -> None:
    """Requires the shape, dtype, device and, where they count, strides of ``whose`` results.

    Raises:
        ContractError: a result has others.
    """
    for name, right in wanted.items():
        value = results[name]
        if not isinstance(value, torch.Tensor):
            raise ContractError(f"{name} is of type {type(value).__name__}, and no tensor")
        mine, theirs = _layout(value, strides_count), _layout(right, strides_count)
        if mine != theirs:
            raise ContractError(f"{name} is {mine}, and {whose} is {theirs}")


def require_equal(subject: Subject, ran: Ran, other: Ran, whose: str) -> None:
    """Requires the results of ``other``, and what it wrote.

    A node's results are equal to the bit. Without a boundary a compiler fuses and rounds in other
    places: both may be off by a tolerance, and a composite's strides are the compiler's.

    Raises:
        ContractError: a result, or a written input, is another.
    """
    entry = subject.case.op.entry
    written = subject.effects.written
    mine = {**{name: ran.given[name] for name in written}, **ran.results}
    theirs = {**{name: other.given[name] for name in written}, **other.results}
    # What plain PyTorch in a composite returns, inductor lays out: on a card it may pad a matmul of
    # an odd width, by a measurement of its own, and the rows of the result stay apart.
    require_alike(mine, theirs, whose, strides_count=not entry.composition)
    for name, right in theirs.items():
        tolerance = None
        if not subject.has_boundary:
            tolerance = tolerance_of(entry, name, right.dtype)
            tolerance = None if tolerance is None else (2 * tolerance[0], 2 * tolerance[1])
        problem = disagreement(mine[name], right, tolerance)
        if problem:
            raise ContractError(f"{name} {problem} by {whose}")


def require_true(subject: Subject, ran: Ran, truth: Mapping[str, Any]) -> list[str]:
    """Requires the formula's values within the entry's tolerance; returns what has none.

    Raises:
        ContractError: a result, or a written input, is further off.
    """
    entry = subject.case.op.entry
    unknown = []
    for name in (*ran.results, *subject.effects.written):
        value = ran.results[name] if name in ran.results else ran.given[name]
        aliases = [o for o, argument in subject.effects.aliases.items() if argument == name]
        if name not in truth:
            if name in ran.results:
                raise ContractError(f"the oracle gives no {name}")
            unknown += [name] if not aliases else []
            continue
        problem = disagreement(value, truth[name], tolerance_of(entry, name, value.dtype))
        if problem:
            raise ContractError(f"{name} {problem} by the formula in float64")
    return unknown
