"""The frozen model of a manifest entry: everything that can be known about an op without its code.

An :class:`Entry` is what the loader makes of one TOML file. Nothing here knows torch; dtypes are
names (``"float16"``), shapes are tuples of :class:`ShapeItem`, conditions are
:class:`~tileops.manifest.expressions.Expression` objects. The objects are frozen and hashable by
identity, carry the place that they came from, and are safe to share between threads.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from tileops.manifest.expressions import Expression

__all__ = [
    "MISSING",
    "Branch",
    "CallInt",
    "Entry",
    "Input",
    "Output",
    "Param",
    "Roofline",
    "Rule",
    "ShapeItem",
    "ShapeKind",
    "Signature",
    "SubOp",
    "Tolerance",
    "Workload",
]


class _Missing(enum.Enum):
    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing.MISSING
"""The default of a param that has none (None is a value that a param may have)."""

ParamType = Literal["int", "float", "bool", "str", "dtype", "device", "shape", "ints", "floats"]


@dataclasses.dataclass(frozen=True, eq=False)
class Param:
    """A constructor parameter.

    ``type`` is the kind of value after canonicalisation: ``shape`` accepts an int or a sequence of
    ints and becomes a tuple of ints; ``ints`` and ``floats`` become tuples; ``str`` with
    ``choices`` is an enumeration. ``optional`` admits None, which is the default unless
    ``default`` says otherwise.
    """

    name: str
    type: ParamType
    doc: str = ""
    optional: bool = False
    default: Any = MISSING
    keyword_only: bool = False
    choices: tuple[Any, ...] | None = None
    line: int = 0


class ShapeKind(enum.Enum):
    """What one item of a shape is."""

    DIM = "dim"
    """A dim name: binds at its first present tensor, checks afterwards."""
    VARIADIC = "variadic"
    """``*B``: any number of axes, bound at the first present tensor."""
    PARAM = "param"
    """A scalar int param."""
    PARAM_AXES = "param_axes"
    """``*normalized_shape``: the axes of a shape param."""
    EXPRESSION = "expression"
    """Anything else; it only checks."""


@dataclasses.dataclass(frozen=True, eq=False)
class ShapeItem:
    """One item of a tensor's shape; ``text`` is its spelling in the entry, without the star."""

    kind: ShapeKind
    text: str
    expression: Expression | None = None

    def __str__(self) -> str:
        star = self.kind in (ShapeKind.VARIADIC, ShapeKind.PARAM_AXES)
        return f"*{self.text}" if star else self.text


Shape = tuple[ShapeItem, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Input:
    """A call-time tensor.

    ``dtype`` is a dtype variable, a dtype name or the name of a dtype param. ``shapes`` has one
    alternative, or several of different rank (position ids ``[S]`` or ``[*B, S]``).
    ``optional`` is False, True or a condition; ``mutated`` likewise. Conditions read params and
    the presence of inputs (``weight is None``), never dims or data.
    """

    name: str
    dtype: str
    shapes: tuple[Shape, ...]
    doc: str = ""
    optional: bool | Expression = False
    mutated: bool | Expression = False
    line: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Output:
    """A result.

    ``alias`` names the written input that the result is, in exactly the branches that write it;
    elsewhere the result is allocated. ``buffer = "out"`` lets the caller pass the tensor to fill.
    ``when`` is the condition under which the result exists. ``device`` names a param, or is None
    for the device of the call's tensors.
    """

    name: str
    dtype: str
    shape: Shape
    doc: str = ""
    alias: str | None = None
    buffer: Literal["out"] | None = None
    when: Expression | None = None
    device: str | None = None
    line: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class CallInt:
    """A number given at the call, a SymInt of the operator's schema (``max_seqlen_q``)."""

    name: str
    doc: str = ""
    default: Any = MISSING
    line: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """A condition that every valid call (or construction) meets, and what a failing one is told.

    ``phase`` is ``construction`` where ``require`` reads params only, else ``call``.
    """

    require: Expression
    message: str
    phase: Literal["construction", "call"]
    line: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Branch:
    """One effect branch: the inputs it writes, whether it fills ``out``, the outputs it omits.

    ``operator`` is the operator's name without its namespace; ``returns`` are the outputs that
    this branch's operator allocates and returns, in order.
    """

    operator: str
    written: tuple[str, ...]
    out: bool
    omitted: tuple[str, ...]
    returns: tuple[str, ...]

    @property
    def writes(self) -> tuple[str, ...]:
        """Every tensor that a call writes: the written inputs, then ``out`` where it is filled."""
        return (*self.written, "out") if self.out else self.written


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """The signature: named axes, dtype variables, params, inputs, call-time ints, outputs, rules.

    ``dims`` maps a dim's name (``*`` first for a variadic one) to its description. ``dtypes`` maps
    a dtype variable to the dtypes that it ranges over. ``combinations``, where not empty, lists
    the only valid assignments of the variables that it names.
    """

    dims: Mapping[str, str]
    dtypes: Mapping[str, tuple[str, ...]]
    combinations: tuple[Mapping[str, str], ...]
    params: tuple[Param, ...]
    inputs: tuple[Input, ...]
    ints: tuple[CallInt, ...]
    outputs: tuple[Output, ...]
    rules: tuple[Rule, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class SubOp:
    """A sub-op of a composite: how many of it, and under which condition on the params."""

    op: str
    count: int | Expression = 1
    when: Expression | None = None
    line: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """A labelled real shape.

    ``dims`` binds every free dim (a variadic one to a tuple), ``params`` gives the constructor's
    arguments, ``dtypes`` each dtype variable, ``present`` the optional inputs that the call
    passes, ``ranks`` how many axes inputs with alternative shapes have, ``ints`` the call-time
    numbers, ``generators`` how value-carrying inputs are made
    (``cu_seqlens = {kind = "cu_seqlens", ...}``), ``scales`` what the normal numbers of a floating
    input are multiplied by.
    """

    label: str
    model: str
    phase: str
    params: Mapping[str, Any]
    dims: Mapping[str, int | tuple[int, ...]]
    dtypes: Mapping[str, str]
    present: tuple[str, ...]
    ranks: Mapping[str, int]
    ints: Mapping[str, int]
    generators: Mapping[str, Mapping[str, Any]]
    scales: Mapping[str, float]
    line: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Roofline:
    """The least work of a call; ``bytes`` is None where it is what the signature implies."""

    flops: Expression | None
    bytes: Expression | None


@dataclasses.dataclass(frozen=True, eq=False)
class Tolerance:
    """How far an output may lie from the float64 formula, by the output's dtype, and why.

    A value passes where ``|value - oracle| <= atol + rtol * |oracle|``.
    """

    output: str
    dtype: str
    rtol: float
    atol: float
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """One op of the manifest."""

    name: str
    family: str
    namespace: str
    snake: str
    status: Literal["planned", "implemented"]
    since: str
    summary: str
    formula: str
    reference: str
    accumulation_dtype: str | None
    signature: Signature
    composition: tuple[SubOp, ...]
    workloads: tuple[Workload, ...]
    roofline: Roofline
    tolerances: tuple[Tolerance, ...]
    branches: tuple[Branch, ...]
    path: Path
    document: Mapping[str, Any] = dataclasses.field(repr=False)
    """The TOML as parsed, for :mod:`tileops.manifest.diff` and export."""

    @property
    def has_boundary(self) -> bool:
        """Whether the op has a compile boundary: a call-time tensor input and no composition."""
        return bool(self.signature.inputs) and not self.composition

    @property
    def compile_op_names(self) -> tuple[str, ...]:
        """The qualified names of the op's operators, one an effect branch, or ``()``."""
        if not self.has_boundary:
            return ()
        return tuple(f"{self.namespace}::{branch.operator}" for branch in self.branches)
