"""Whether a result is right: what is wrong is refused, and not timed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tileops.core.bench.inputs import clone
from tileops.core.contract import cases
from tileops.core.dtypes import dtype_name
from tileops.core.op import Op
from tileops.core.testing import poisoned
from tileops.manifest import Entry
from tileops.manifest.calls import Call
from tileops.manifest.model import Tolerance

__all__ = ["SLACK_OF_OTHERS", "Truth", "Verdict", "judge", "run_once", "truth_of"]

SLACK_OF_OTHERS = 4.0
"""Times the entry's tolerance that others' results may be off: they may round in more places."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is wrong with a result, "" if nothing; ``error`` is the largest in tolerances."""

    problem: str
    error: float


@dataclasses.dataclass(frozen=True)
class Truth:
    """What a call should give, by name: outputs, and the inputs that it writes."""

    entry: Entry
    reference: Mapping[str, torch.Tensor]
    oracle: Mapping[str, torch.Tensor]


def run_once(
    function: Callable[..., Any],
    call: Call,
    entry: Entry,
    arguments: dict[str, Any],
    *,
    poison: bool = True,
) -> dict[str, torch.Tensor]:
    """Outputs and written inputs of one call on copies of ``arguments``.

    With ``poison``, memory that the call allocates is filled with NaN first, so that what is not
    written shows.
    """
    given = clone(arguments)
    with poisoned() if poison else contextlib.nullcontext(), torch.no_grad():
        results = function(**given)
    return gathered(call, entry, results, given)


def gathered(
    call: Call, entry: Entry, results: Any, given: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """A call's results by name, with the inputs that it wrote."""
    found = results if isinstance(results, (tuple, list)) else (results,)
    named = dict(zip(call.outputs, found, strict=False))
    written = call.branch(entry).written if entry.branches else ()
    return {**{name: given[name] for name in written}, **named}


def truth_of(op: Op, call: Call, arguments: dict[str, Any]) -> Truth:
    """What the op's reference gives, and the formula in float64 where a contract has it.

    Raises:
        TileOpsError: the reference does not serve the call.
    """
    cls = type(op)
    reference = run_once(cls(**call.params, target="reference"), call, cls.entry, arguments)
    oracle: dict[str, torch.Tensor] = {}
    case = next((case for case in cases() if case.op is cls), None)
    if case is not None:
        exact = {name: _exact(value) for name, value in clone(arguments).items()}
        results = case.oracle(op, **exact)
        if isinstance(results, Mapping):
            # Of written inputs that no output is, an entry has no tolerance.
            oracle = {name: results[name] for name in call.outputs}
        else:
            found = results if isinstance(results, tuple) else (results,)
            oracle = dict(zip(call.outputs, found, strict=True))
    return Truth(cls.entry, reference, oracle)


def judge(truth: Truth, results: Mapping[str, Any], slack: float = 1.0) -> Verdict:
    """Compares results with the truth, within ``slack`` times the entry's tolerances.

    The reference may be off by a tolerance itself, so twice as much is allowed against it.
    """
    error = 0.0
    for name, reference in truth.reference.items():
        value = results.get(name)
        if not isinstance(value, torch.Tensor):
            return Verdict(f"{name} is missing", float("inf"))
        if (value.dtype, value.shape) != (reference.dtype, reference.shape):
            return Verdict(
                f"{name} is {_facts(value)}, and {_facts(reference)} is right", float("inf")
            )
        tolerance = _tolerance(truth.entry, name, reference.dtype)
        compared = [("the reference", reference, 2 * slack)]
        if name in truth.oracle:
            compared.append(("the formula", truth.oracle[name], slack))
        for what, right, times in compared:
            verdict = _compare(f"{name} against {what}", value, right, tolerance, times)
            if verdict.problem:
                return verdict
            error = max(error, verdict.error)
    return Verdict("", error)


def _compare(
    title: str, value: torch.Tensor, right: torch.Tensor, tolerance: Tolerance | None, slack: float
) -> Verdict:
    rtol, atol = (0.0, 0.0) if tolerance is None else (tolerance.rtol, tolerance.atol)
    right = right.double()
    value = value.to(right.device).double()
    allowed = atol + rtol * right.abs()
    same = (value == right) | (value.isnan() & right.isnan())
    difference = torch.where(same, 0.0, (value - right).abs())
    # Written so that a NaN is wrong.
    wrong = ~(difference <= slack * allowed)
    if not bool(wrong.any()):
        ratio = torch.where(same, 0.0, difference / allowed)
        return Verdict("", float(ratio.max()) if ratio.numel() else 0.0)
    place = tuple(int(i) for i in wrong.nonzero()[0])
    return Verdict(
        f"{title}: {int(wrong.sum())} of {wrong.numel()} values are wrong, the first at "
        f"{list(place)}: {float(value[place]):.6g}, and {float(right[place]):.6g} is right to "
        f"within {slack * float(allowed[place]):.2g}",
        float("inf"),
    )


def _exact(value: Any) -> Any:
    """``value`` in float64 where it is a floating tensor, where it is: a gigabyte of it would take
    a CPU half a minute."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def _tolerance(entry: Entry, name: str, dtype: torch.dtype) -> Tolerance | None:
    """The tolerance of an output, or of the output that stands for a written input."""
    names = {name, *(output.name for output in entry.signature.outputs if output.alias == name)}
    text = dtype_name(dtype)
    for tolerance in entry.tolerances:
        if tolerance.output in names and tolerance.dtype == text:
            return tolerance
    return None


def _facts(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
