"""What the stubs of an op say that follows from its entry: parameters, inputs, results."""

from __future__ import annotations

import textwrap

from tileops.manifest import MISSING, Entry
from tileops.manifest.model import Param

__all__ = ["words"]

GIVEN = {
    "shape": "int | Sequence[int]",
    "ints": "Sequence[int]",
    "floats": "Sequence[float]",
    "dtype": "torch.dtype | str",
    "device": "torch.device | str",
}
"""What the constructor accepts for a param, where that is not the name of its type."""
KEPT = {
    "shape": "tuple[int, ...]",
    "ints": "tuple[int, ...]",
    "floats": "tuple[float, ...]",
    "dtype": "torch.dtype",
    "device": "torch.device",
}
"""What the param is on the instance."""
TARGET = "target: the name of the target to serve the calls; None chooses by device."


def words(entry: Entry) -> dict[str, str]:
    """The placeholders of ``tools/templates/op`` that are of the signature."""
    signature = entry.signature
    inputs = [one.name for one in signature.inputs]
    outputs = [one.name for one in signature.outputs]
    optional = {one.name for one in signature.inputs if one.optional is not False}
    typed = {name: "torch.Tensor | None" if name in optional else "torch.Tensor" for name in inputs}
    tensors = [f"{name}: {typed[name]}{' = None' * (name in optional)}" for name in inputs]
    call = ", ".join(f"{name}=None" if name in optional else name for name in inputs)
    return {
        "results": _results(entry),
        "call": _wrapped(f"``op({call})``.", " " * 8),
        "call_inputs": _wrapped(
            f"FILL: fresh random tensors of awkward sizes, by name: {call}", "    # "
        ),
        "interface": _wrapped(f"``({', '.join(inputs)}) -> {', '.join(outputs)}``.", " " * 4),
        "input_list": ", ".join(inputs),
        "input_names": _tuple(inputs),
        "output_names": _tuple(outputs),
        "unpacked": ", ".join(inputs) + "," * (len(inputs) == 1),
        "required": _lines(f"assert {name} is not None" for name in inputs if name not in optional),
        "typed_inputs": ", ".join(f"{name}: {typed[name]}" for name in inputs),
        "oracle_inputs": ", ".join(["*", *tensors]) if inputs else "**_: Any",
        "contiguous": _lines(
            f"{name} = None if {name} is None else {name}.contiguous()"
            if name in optional
            else f"{name} = {name}.contiguous()"
            for name in inputs
        ),
        "first": inputs[0] if inputs else "",
        "forward": ", ".join(["self", *tensors, *_late(entry)]),
        "operators": repr(entry.compile_op_names),
        "arguments": _lines([*(f"{one.name}: {one.doc}." for one in signature.params), TARGET]),
        "attributes": "".join(f"\n    {one.name}: {_kept(one)}" for one in signature.params),
        "constructor": _constructor(entry),
        "assignments": "".join(_assignment(one) for one in signature.params),
    }


def _lines(lines: object) -> str:
    return "\n        ".join(lines)  # type: ignore[arg-type]


def _wrapped(text: str, before: str) -> str:
    """The text in lines that are short enough after ``before``, which the first one follows."""
    return f"\n{before}".join(textwrap.wrap(text, 99 - len(before)))


def _tuple(names: list[str]) -> str:
    return "(" + ", ".join(f'"{name}"' for name in names) + "," * (len(names) == 1) + ")"


def _results(entry: Entry) -> str:
    outputs = entry.signature.outputs
    if any(one.when is not None for one in outputs):
        return "Any"
    if len(outputs) < 2:
        return "torch.Tensor" if outputs else "None"
    return f"tuple[{', '.join(['torch.Tensor'] * len(outputs))}]"


def _late(entry: Entry) -> list[str]:
    """What follows the inputs of ``forward``: call-time numbers, then ``out``."""
    keyword_only = any(one.optional is not False for one in entry.signature.inputs)
    plain = [one for one in entry.signature.ints if not (keyword_only and one.default is MISSING)]
    named = [f"{one.name}: int" for one in entry.signature.ints if one not in plain]
    if any(one.buffer for one in entry.signature.outputs):
        named.append("out: torch.Tensor | None = None")
    defaults = {one: "" if one.default is MISSING else f" = {one.default!r}" for one in plain}
    return [f"{one.name}: int{defaults[one]}" for one in plain] + (["*", *named] if named else [])


def _constructor(entry: Entry) -> str:
    params = entry.signature.params
    positional = [_parameter(one) for one in params if not one.keyword_only]
    named = [_parameter(one) for one in params if one.keyword_only]
    return ", ".join(["self", *positional, "*", *named, "target: str | None = None"])


def _parameter(param: Param) -> str:
    annotation = GIVEN.get(param.type, param.type)
    default = param.default
    if param.optional:
        annotation += " | None"
        default = None if default is MISSING else default
    if default is MISSING:
        return f"{param.name}: {annotation}"
    return f"{param.name}: {annotation} = {tuple(default) if _several(default) else default!r}"


def _several(default: object) -> bool:
    return isinstance(default, (list, tuple))


def _kept(param: Param) -> str:
    kept = KEPT.get(param.type, param.type)
    return f"{kept} | None" if param.optional else kept


def _assignment(param: Param) -> str:
    ignored = "  # type: ignore[assignment]  # made canonical below"
    return f"self.{param.name} = {param.name}{ignored * (param.type in KEPT)}\n        "
