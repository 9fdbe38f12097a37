"""Comparing what dtypes a signature takes, however its variables are called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

from tileops.manifest.diff.change import Level
from tileops.manifest.model import Signature

__all__ = ["dtype_changes"]

MAX_CHOICES: Final = 10_000
"""How many choices of dtypes are compared one by one."""

Assignment = tuple[tuple[str, str], ...]


def dtype_changes(old: Signature, new: Signature) -> Iterator[tuple[Level, str]]:
    """Yield the dtypes of inputs that are gone or new, and those of outputs that changed."""
    shared = [value.name for value in old.inputs if value.name in {v.name for v in new.inputs}]
    results = [value.name for value in old.outputs if value.name in {v.name for v in new.outputs}]
    if max(map(_choices, (old, new))) > MAX_CHOICES:
        yield from _ranges(old, new, shared, results)
        return
    before, after = _assignments(old, shared, results), _assignments(new, shared, results)
    lost = [inputs for inputs in before if inputs not in after]
    gained = [inputs for inputs in after if inputs not in before]
    if lost:
        yield Level.BREAKING, f"the dtypes {_listed(lost)} are not taken any more"
    if gained:
        yield Level.ADDITIVE, f"the dtypes {_listed(gained)} are taken"
    for inputs, outputs in before.items():
        if inputs in after and after[inputs] != outputs:
            given = f" for {_one(inputs)}" if inputs else ""
            yield (
                Level.BREAKING,
                f"the results {_one(outputs)} are {_one(after[inputs])}{given}",
            )
            return


def _choices(signature: Signature) -> int:
    return math.prod(map(len, signature.dtypes.values()))


def _ranges(
    old: Signature, new: Signature, inputs: list[str], outputs: list[str]
) -> Iterator[tuple[Level, str]]:
    """Compare the tensors one by one, and which of them go together as a whole."""
    before, after = _dtypes(old), _dtypes(new)
    for name in (*inputs, *outputs):
        ours, theirs = old.dtypes.get(before[name]), new.dtypes.get(after[name])
        lost = [d for d in ours or (before[name],) if d not in (theirs or (after[name],))]
        gained = [d for d in theirs or (after[name],) if d not in (ours or (before[name],))]
        if lost:
            yield Level.BREAKING, f"the dtypes {', '.join(lost)} of {name} are gone"
        if gained:
            level = Level.ADDITIVE if name in inputs else Level.BREAKING
            yield level, f"the dtypes {', '.join(gained)} of {name} are new"
    if _together(old, inputs, outputs) != _together(new, inputs, outputs):
        yield Level.BREAKING, "the dtypes that go together are others"


def _dtypes(signature: Signature) -> dict[str, str]:
    found = {value.name: value.dtype for value in signature.inputs}
    return found | {value.name: value.dtype for value in signature.outputs}


def _together(
    signature: Signature, inputs: list[str], outputs: list[str]
) -> tuple[list[str], set[Assignment]]:
    """Return the first tensor of each tensor's variable, and the combinations of these."""
    dtypes = _dtypes(signature)
    first: dict[str, str] = {}
    for name in (*inputs, *outputs):
        if dtypes[name] in signature.dtypes:
            first.setdefault(dtypes[name], name)
    together = [first.get(dtypes[name], name) for name in (*inputs, *outputs)]
    combinations = {
        tuple(sorted((first.get(name, name), dtype) for name, dtype in combination.items()))
        for combination in signature.combinations
    }
    return together, combinations


def _assignments(
    signature: Signature, inputs: list[str], outputs: list[str]
) -> dict[Assignment, Assignment]:
    """Return, for each valid choice of the inputs' dtypes, the outputs'."""
    variables = list(signature.dtypes)
    found: dict[Assignment, Assignment] = {}
    for choice in itertools.product(*signature.dtypes.values()):
        values = dict(zip(variables, choice, strict=True))
        if signature.combinations and not any(
            all(values.get(name) == dtype for name, dtype in combination.items())
            for combination in signature.combinations
        ):
            continue
        tensors = {v.name: values.get(v.dtype, v.dtype) for v in signature.inputs}
        tensors.update({v.name: values.get(v.dtype, v.dtype) for v in signature.outputs})
        given = tuple((name, tensors[name]) for name in inputs)
        found[given] = tuple((name, tensors[name]) for name in outputs)
    return found


def _listed(assignments: list[Assignment]) -> str:
    shown = "; ".join(_one(one) for one in assignments[:3])
    return shown if len(assignments) <= 3 else f"{shown}; and {len(assignments) - 3} more"


def _one(assignment: Assignment) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in assignment)
