"""An entry as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tileops.manifest.calls import least_work, resolve
from tileops.manifest.model import (
    MISSING,
    Branch,
    Entry,
    Input,
    Output,
    Param,
    Rule,
    Shape,
    Workload,
)

__all__ = ["constructor", "forward", "render"]


def render(entry: Entry) -> str:
    """Return the whole entry as text."""
    signature = entry.signature
    call = [forward(entry), *_table(_tensors(entry), "  ")]
    parts = [
        f"{entry.name}  ({entry.family}, {entry.status} since {entry.since})",
        f"  {entry.summary}",
        _section("Formula", entry.formula.splitlines()),
        _section("Reference", [entry.reference]),
        _section("Construct", [constructor(entry), *_table(_params(signature.params), "  ")]),
        _section("Call", call),
        _section("Dims", _table(signature.dims.items())),
        _section("Dtypes", _dtypes(entry)),
        _section("Operators", _operators(entry)),
        _section("Composition", _table(_sub_ops(entry))),
        _section("Rules", [line for rule in signature.rules for line in _rule(rule)]),
        _section("Workloads", [line for one in entry.workloads for line in _workload(entry, one)]),
        _section("Roofline", _roofline(entry)),
        _section("Tolerances", _table(_tolerances(entry))),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def constructor(entry: Entry) -> str:
    """Return the constructor's call, ``Op(normalized_shape, eps=None, *, target=None)``."""
    words = []
    starred = False
    for param in entry.signature.params:
        if param.keyword_only and not starred:
            words.append("*")
            starred = True
        words.append(_with_default(param.name, param.default))
    if not starred:
        words.append("*")
    return f"{entry.name}({', '.join([*words, 'target=None'])})"


def forward(entry: Entry) -> str:
    """Return ``forward``'s call and what it gives, ``forward(x, weight=None) -> y``."""
    signature = entry.signature
    words = [
        value.name if value.optional is False else f"{value.name}=None"
        for value in signature.inputs
    ]
    words += [_with_default(number.name, number.default) for number in signature.ints]
    if any(output.buffer for output in signature.outputs):
        words += ["*", "out=None"]
    results = ", ".join(
        output.name if output.when is None else f"[{output.name}]" for output in signature.outputs
    )
    return f"forward({', '.join(words)}) -> {results or 'None'}"


def _with_default(name: str, default: object) -> str:
    return name if default is MISSING else f"{name}={default!r}"


def _params(params: Sequence[Param]) -> Iterator[tuple[str, ...]]:
    for param in params:
        kind = param.type + (" or None" if param.optional else "")
        if param.choices is not None:
            kind += ": " + ", ".join(map(str, param.choices))
        yield param.name, kind, param.doc


def _tensors(entry: Entry) -> Iterator[tuple[str, ...]]:
    for value in entry.signature.inputs:
        shape = " or ".join(map(_shape, value.shapes))
        yield value.name, f"{value.dtype} {shape}", _marks(value), value.doc
    for number in entry.signature.ints:
        yield number.name, "int", "", number.doc
    for output in entry.signature.outputs:
        yield (
            f"-> {output.name}",
            f"{output.dtype} {_shape(output.shape)}",
            _marks(output),
            output.doc,
        )


def _marks(value: Input | Output) -> str:
    marks = []
    if isinstance(value, Input):
        for word, condition in (("optional", value.optional), ("written", value.mutated)):
            if condition is True:
                marks.append(word)
            elif condition is not False:
                marks.append(f"{word} if {condition}")
    else:
        marks += [f"is {value.alias} where that is written"] if value.alias else []
        marks += ["may fill out"] if value.buffer else []
        marks += [f"if {value.when}"] if value.when else []
        marks += [f"on {value.device}"] if value.device else []
    return ", ".join(marks)


def _shape(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _dtypes(entry: Entry) -> list[str]:
    signature = entry.signature
    lines = _table([(name, ", ".join(values)) for name, values in signature.dtypes.items()])
    if signature.combinations:
        lines.append(
            "only "
            + "; ".join(
                ", ".join(f"{name} = {dtype}" for name, dtype in combination.items())
                for combination in signature.combinations
            )
        )
    if entry.accumulation_dtype:
        lines.append(f"accumulates in {entry.accumulation_dtype}")
    return lines


def _operators(entry: Entry) -> list[str]:
    if entry.has_boundary:
        return _table(_operator(entry, branch) for branch in entry.branches)
    if entry.composition:
        return ["none: it is a composite, and each op that it is made of is a node"]
    return ["none: no tensor is given at the call"]


def _operator(entry: Entry, branch: Branch) -> tuple[str, ...]:
    told = [f"writes {', '.join(branch.written)}"] if branch.written else []
    told += ["fills out"] if branch.out else []
    told += [f"leaves out {', '.join(branch.omitted)}"] if branch.omitted else []
    told += [f"returns {', '.join(branch.returns) or 'nothing new'}"]
    return f"{entry.namespace}::{branch.operator}", "; ".join(told)


def _sub_ops(entry: Entry) -> Iterator[tuple[str, ...]]:
    for part in entry.composition:
        yield part.op, f"{part.count} times", f"if {part.when}" if part.when else ""


def _rule(rule: Rule) -> tuple[str, str]:
    return rule.require.source, f"    else: {rule.message}"


def _workload(entry: Entry, workload: Workload) -> Iterator[str]:
    call = resolve(entry, workload)
    flops, moved = least_work(entry, call)
    yield f"{workload.label}  ({workload.model}, {workload.phase})"
    results = {f"-> {name}": facts for name, facts in call.outputs.items()}
    yield "    " + ", ".join(
        f"{name} {facts.dtype}{list(facts.shape)}"
        for name, facts in [*call.inputs.items(), *results.items()]
        if facts is not None
    )
    yield f"    {flops:.3g} flops, {moved:.3g} bytes"


def _tolerances(entry: Entry) -> Iterator[tuple[str, ...]]:
    for one in entry.tolerances:
        yield one.output, one.dtype, f"rtol {one.rtol:g}", f"atol {one.atol:g}", one.reason


def _roofline(entry: Entry) -> list[str]:
    lines = [f"flops  {entry.roofline.flops}"] if entry.roofline.flops else []
    lines.append(f"bytes  {entry.roofline.bytes or 'what the signature implies'}")
    return lines


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"\n{title}", *(f"  {line}" for line in lines)]) if lines else ""


def _table(rows: Iterable[tuple[str, ...]], indent: str = "") -> list[str]:
    """Align all columns but the last."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    lines = []
    for row in listed:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        lines.append(indent + "  ".join([*cells, row[-1]]).rstrip())
    return lines
