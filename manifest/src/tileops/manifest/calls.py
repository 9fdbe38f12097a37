"""The call that a workload stands for: every tensor's shape, dtype and generated values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tileops.manifest.expressions import Expression
from tileops.manifest.generators import generate
from tileops.manifest.model import MISSING, Branch, Entry, Input, Shape, ShapeKind, Workload
from tileops.manifest.values import canonical
from tileops.manifest.work import TensorFacts

__all__ = ["Call", "fixed_rank", "least_work", "resolve"]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: the constructor's params, the inputs that are passed, and what results.

    ``inputs`` has None where an optional input is left out, ``outputs`` no output that is omitted.
    ``names`` is what expressions read.
    """

    params: Mapping[str, Any]
    inputs: Mapping[str, TensorFacts | None]
    ints: Mapping[str, int]
    outputs: Mapping[str, TensorFacts]
    names: Mapping[str, Any]

    def branch(self, entry: Entry, *, out: bool = False) -> Branch:
        """Return the effect branch that serves this call."""
        written = tuple(
            value.name
            for value in entry.signature.inputs
            if self.inputs[value.name] is not None and self._holds(value.mutated)
        )
        omitted = tuple(o.name for o in entry.signature.outputs if o.name not in self.outputs)
        return next(
            branch
            for branch in entry.branches
            if (branch.written, branch.out, branch.omitted) == (written, out, omitted)
        )

    def _holds(self, condition: bool | Expression) -> bool:
        return condition if isinstance(condition, bool) else bool(condition.evaluate(self.names))


def resolve(entry: Entry, workload: Workload) -> Call:
    """Return the call that a workload stands for.

    :raises ValueError: a param does not take its value.
    :raises KeyError: a param, dim, dtype variable or call-time number that it needs is not given.
    :raises GeneratorError: a generator does not fit.
    """
    signature = entry.signature
    params = {}
    for param in signature.params:
        value = workload.params.get(param.name, param.default)
        if value is MISSING:
            raise KeyError(param.name)
        params[param.name] = canonical(param, value)
    ints = {}
    for number in signature.ints:
        given = workload.ints.get(number.name, number.default)
        if given is MISSING:
            raise KeyError(number.name)
        ints[number.name] = given
    dims: dict[str, Any] = {name.removeprefix("*"): None for name in signature.dims}
    dims.update(workload.dims)
    present = {
        value.name: value.optional is False or value.name in workload.present
        for value in signature.inputs
    }
    names: dict[str, Any] = {**params, **dims, **ints, **workload.dtypes}
    names.update({name: name if there else None for name, there in present.items()})
    shapes = {
        value.name: sizes(_alternative(value, workload), names)
        for value in signature.inputs
        if present[value.name]
    }
    values = generate(
        {name: made for name, made in workload.generators.items() if present.get(name)},
        shapes,
        names,
    )
    inputs = {
        value.name: TensorFacts(
            shapes[value.name],
            _dtype(value.dtype, names),
            values.get(value.name),
            workload.scales.get(value.name, 1.0),
        )
        if present[value.name]
        else None
        for value in signature.inputs
    }
    outputs = {
        output.name: TensorFacts(sizes(output.shape, names), _dtype(output.dtype, names))
        for output in signature.outputs
        if output.when is None or output.when.evaluate(names)
    }
    return Call(params, inputs, ints, outputs, names)


def least_work(entry: Entry, call: Call) -> tuple[int, int]:
    """Return the least flops and bytes of a call by the entry's roofline.

    Without ``bytes`` they are what the signature implies: each input read once, each written input
    written once more, each other result written once. Without ``flops`` they are 0.
    """
    names = {**call.names, **call.inputs, **dict.fromkeys(_output_names(entry)), **call.outputs}
    roofline = entry.roofline
    flops = 0 if roofline.flops is None else roofline.flops.evaluate(names)
    if roofline.bytes is not None:
        return int(flops), int(roofline.bytes.evaluate(names))
    branch = call.branch(entry) if entry.branches else None
    moved = sum(facts.nbytes for facts in call.inputs.values() if facts is not None)
    for output in entry.signature.outputs:
        if output.name in call.outputs and (branch is None or output.name in branch.returns):
            moved += call.outputs[output.name].nbytes
    for name in branch.written if branch is not None else ():
        facts = call.inputs[name]
        assert facts is not None
        moved += facts.nbytes
    return int(flops), moved


def sizes(shape: Shape, names: Mapping[str, Any]) -> tuple[int, ...]:
    """Return a shape's sizes where its names have these values."""
    found: list[int] = []
    for item in shape:
        if item.kind in (ShapeKind.VARIADIC, ShapeKind.PARAM_AXES):
            found.extend(names[item.text])
        elif item.kind is ShapeKind.EXPRESSION:
            assert item.expression is not None
            found.append(item.expression.evaluate(names))
        else:
            found.append(names[item.text])
    return tuple(found)


def _alternative(value: Input, workload: Workload) -> Shape:
    """Return the alternative that a workload uses: of the rank that it gives for the input, else
    the last of which it gives every dim.

    Alternatives grow in rank, so the last is the one that needs most dims.
    """
    rank = workload.ranks.get(value.name)
    for shape in reversed(value.shapes):
        free = [i.text for i in shape if i.kind in (ShapeKind.DIM, ShapeKind.VARIADIC)]
        if rank in (None, fixed_rank(shape)) and all(name in workload.dims for name in free):
            return shape
    return value.shapes[0]


def fixed_rank(shape: Shape) -> int | None:
    """Return how many axes a shape has, or None where that varies."""
    varying = (ShapeKind.VARIADIC, ShapeKind.PARAM_AXES)
    return None if any(item.kind in varying for item in shape) else len(shape)


def _output_names(entry: Entry) -> list[str]:
    return [output.name for output in entry.signature.outputs]


def _dtype(dtype: str, names: Mapping[str, Any]) -> str:
    found: str = names.get(dtype, dtype)
    return found
