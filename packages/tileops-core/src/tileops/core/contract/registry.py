"""What is registered: compile cases, and the ops that need one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch

from tileops.core.errors import DefinitionError
from tileops.core.families import load_families
from tileops.core.op import Op

__all__ = [
    "CompileCase",
    "cases",
    "load_contracts",
    "ops_with_boundary",
    "ops_without_case",
    "register",
]


@dataclasses.dataclass(frozen=True)
class CompileCase:
    """One way to call an op that must compile cold.

    Attributes:
        op: the op's class.
        label: what tells the case from the op's others.
        params: the constructor's arguments.
        inputs: makes the call's arguments by name, fresh random ones each time, on a device; an
            optional input that the case leaves out is not among them.
        oracle: the op's formula in float64, independent of the op's reference: takes the op and
            the arguments by name, in float64 where they are floating, on the CPU or, in a
            benchmark, on the card; and returns the outputs in order, on the same device, or a
            mapping of them by name. A mapping may also hold what the call writes into an input
            that no output is.
        nodes: the operators that the compiled graph holds, each as often as it is called there.
            None is what the entry says: one of the op's own for an op with a boundary, those of
            the sub-ops for a composite, none for an op without call-time tensors.
        rows: the dim whose size the checks of zero rows and of dynamic sizes change: the call
            stays valid where rows are left out or repeated in every tensor that has the dim. None
            is the first dim of the first tensor, where it is plain from the entry that this holds.
        sized: makes the arguments, as ``inputs`` does, with a given number of rows, for a call
            where leaving rows out or repeating them does not do.
    """

    op: type[Op]
    label: str
    params: Mapping[str, Any]
    inputs: Callable[[torch.device, torch.Generator], dict[str, Any]]
    oracle: Callable[..., Any]
    nodes: Sequence[str] | None = None
    rows: str | None = None
    sized: Callable[[torch.device, torch.Generator, int], dict[str, Any]] | None = None

    @property
    def name(self) -> str:
        return f"{self.op.__name__}-{self.label}"

    def make(self, device: torch.device | None = None, **options: Any) -> Op:
        """A new instance of the op, which has built nothing.

        A param that is a device, and that the case leaves out, is ``device``.
        """
        params = dict(self.params)
        if device is not None:
            for param in self.op.entry.signature.params:
                if param.type == "device":
                    params.setdefault(param.name, device)
        return self.op(**params, **options)


_cases: dict[str, CompileCase] = {}


def register(case: CompileCase) -> CompileCase:
    """Adds ``case``; the same name again replaces it where the module was reloaded.

    Raises:
        DefinitionError: another op of the same name holds the case's name.
    """
    held = _cases.get(case.name)
    if held is not None and held.op.__module__ != case.op.__module__:
        raise DefinitionError(
            f"the compile case {case.name!r} of {case.op.__module__} is already registered by "
            f"{held.op.__module__}; give one of the two another label"
        )
    _cases[case.name] = case
    return case


def load_contracts() -> None:
    """Imports every installed family and the contracts that it registers."""
    load_families()
    for point in entry_points(group="tileops.contracts"):
        point.load()


def cases(family: str | None = None) -> list[CompileCase]:
    """The registered cases, of one family or of all, in the order of their names."""
    return [
        case
        for _, case in sorted(_cases.items())
        if family is None or case.op.entry.family == family
    ]


def ops_with_boundary() -> list[type[Op]]:
    """Every op class of an installed family that has a compile boundary, by name."""
    families = {point.value for point in entry_points(group="tileops.families")}

    def walk(cls: type[Op]) -> list[type[Op]]:
        below = [found for sub in cls.__subclasses__() for found in walk(sub)]
        installed = any(cls.__module__ == f or cls.__module__.startswith(f"{f}.") for f in families)
        return [*below, *([cls] if cls.compile_op_names and installed else [])]

    return sorted(set(walk(Op)), key=lambda cls: cls.__name__)


def ops_without_case() -> list[str]:
    """The names of the installed ops that have a boundary and no compile case."""
    covered = {case.op for case in _cases.values()}
    return [op.__name__ for op in ops_with_boundary() if op not in covered]
