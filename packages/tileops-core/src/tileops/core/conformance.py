"""Whether the installed families are what the manifest says: the manifest's third level.

Every implemented entry of an installed family has its class; the constructor and ``forward`` take
exactly the entry's params and inputs; the class has a boundary exactly where the entry asks for
one; and on every workload the fake gives the outputs that the entry says.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch

from tileops.core.dtypes import dtype_name
from tileops.core.errors import TileOpsError
from tileops.core.factory import place
from tileops.core.families import load_families
from tileops.core.op import Op
from tileops.manifest import MISSING, Entry
from tileops.manifest.calls import Call, resolve
from tileops.manifest.faults import Fault
from tileops.manifest.model import Workload

__all__ = ["check", "check_class", "classes", "meta_arguments"]


def check(entries: Sequence[Entry]) -> list[Fault]:
    """All faults of ``entries`` against the installed families, in the order of the entries.

    An entry of a family that is not installed is not checked here.
    """
    load_families()
    installed = {point.name for point in entry_points(group="tileops.families")}
    defined = {(cls.entry.namespace, cls.entry.name): cls for cls in classes()}
    faults: list[Fault] = []
    for entry in entries:
        cls = defined.get((entry.namespace, entry.name))
        if cls is not None:
            faults += check_class(entry, cls)
        elif entry.status == "implemented" and entry.family in installed:
            faults.append(
                Fault(
                    entry.path,
                    0,
                    f"an implemented entry has its class in the family {entry.family!r}",
                    f"no class named {entry.name}",
                    'define it, or say status = "planned"',
                )
            )
    return faults


def check_class(entry: Entry, cls: type[Op]) -> list[Fault]:
    """The faults of one entry against the class that implements it."""
    if entry.status == "planned":
        return [
            Fault(
                entry.path,
                0,
                "a planned entry has no class yet",
                f"{cls.__module__}.{cls.__qualname__}",
                'say status = "implemented"',
            )
        ]
    faults = [*_parameters(entry, cls), *_boundary(entry, cls)]
    if not faults:
        for workload in entry.workloads:
            faults += _workload(entry, cls, workload)
    return faults


def classes(base: type[Op] = Op) -> Iterable[type[Op]]:
    """Every op class below ``base`` that is defined in this process."""
    for sub in base.__subclasses__():
        if "entry" in sub.__dict__:
            yield sub
        yield from classes(sub)


def _parameters(entry: Entry, cls: type[Op]) -> Iterable[Fault]:
    signature = entry.signature
    params = []
    for param in signature.params:
        default = None if param.optional and param.default is MISSING else param.default
        params.append(_word(param.name, default, param.keyword_only))
    wanted = ", ".join(_ordered([*params, _word("target", None, True)]))
    found = ", ".join(_ordered(_words(cls.__init__)))
    if found != wanted:
        yield Fault(
            entry.path,
            0,
            f"the constructor takes the entry's params: ({wanted})",
            f"({found})",
            f"mend {cls.__qualname__}.__init__ or signature.params",
        )
    inputs = [
        _word(spec.name, MISSING if spec.optional is False else None, False)
        for spec in signature.inputs
    ]
    late = any(spec.optional is not False for spec in signature.inputs)
    for number in signature.ints:
        inputs.append(_word(number.name, number.default, late and number.default is MISSING))
    if any(output.buffer for output in signature.outputs):
        inputs.append(_word("out", None, True))
    wanted = ", ".join(_ordered(inputs))
    found = ", ".join(_ordered(_words(cls.forward)))
    if found != wanted:
        yield Fault(
            entry.path,
            0,
            f"forward takes the entry's inputs: ({wanted})",
            f"({found})",
            f"mend {cls.__qualname__}.forward or signature.inputs",
        )


def _word(name: str, default: Any, keyword_only: bool) -> tuple[str, bool]:
    if isinstance(default, (list, tuple)):
        default = tuple(default)
    if isinstance(default, torch.dtype):
        default = dtype_name(default)
    return (name if default is MISSING else f"{name}={default!r}"), keyword_only


def _words(function: Any) -> list[tuple[str, bool]]:
    found = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        default = MISSING if parameter.default is parameter.empty else parameter.default
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            name = ("*" if parameter.kind is parameter.VAR_POSITIONAL else "**") + name
        found.append(_word(name, default, parameter.kind is parameter.KEYWORD_ONLY))
    return found


def _ordered(words: Sequence[tuple[str, bool]]) -> list[str]:
    """Positional words, then ``*``, then the keyword-only ones, whose order says nothing."""
    keyword_only = sorted(word for word, only in words if only)
    positional = [word for word, only in words if not only]
    return [*positional, *(["*", *keyword_only] if keyword_only else [])]


def _boundary(entry: Entry, cls: type[Op]) -> Iterable[Fault]:
    if cls.compile_op_names != entry.compile_op_names:
        yield Fault(
            entry.path,
            0,
            f"compile_op_names is {entry.compile_op_names}",
            f"{cls.compile_op_names}",
            "leave the boundary to the base class: an op does not name its operators",
        )


def _workload(entry: Entry, cls: type[Op], workload: Workload) -> Iterable[Fault]:
    call = place(entry, resolve(entry, workload), "meta")
    try:
        op = cls(**call.params)
        results = op(**meta_arguments(call))
    except (TileOpsError, RuntimeError) as error:
        yield Fault(
            entry.path,
            workload.line,
            f"the workload {workload.label!r} is a valid call of {cls.__qualname__}",
            str(error),
            "mend the workload, the signature or the class",
        )
        return
    found = results if isinstance(results, tuple) else () if results is None else (results,)
    wanted = [
        f"{name} {facts.dtype}{list(facts.shape)}, contiguous"
        for name, facts in call.outputs.items()
    ]
    given = [
        f"{name} {dtype_name(tensor.dtype)}{list(tensor.shape)}"
        f", {'contiguous' if tensor.is_contiguous() else f'strides {list(tensor.stride())}'}"
        for name, tensor in zip(call.outputs, found, strict=False)
    ]
    if given != wanted or len(found) != len(wanted):
        yield Fault(
            entry.path,
            workload.line,
            f"on the workload {workload.label!r} the fake gives {'; '.join(wanted)}",
            "; ".join(given) or "nothing",
            "leave the fake to the base class, or mend signature.outputs",
        )


def meta_arguments(call: Call) -> dict[str, Any]:
    """What ``call`` passes to the op, its tensors on the meta device."""
    tensors = {
        name: torch.empty(facts.shape, dtype=getattr(torch, facts.dtype), device="meta")
        for name, facts in call.inputs.items()
        if facts is not None
    }
    return {**tensors, **call.ints}
