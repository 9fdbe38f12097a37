"""Level 2: names, params, dtypes and rules of a signature."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from tileops.manifest.checks.report import Report, Where, brief, closest, shown
from tileops.manifest.environments import rule_names
from tileops.manifest.expressions import FUNCTIONS, Expression, ExpressionError
from tileops.manifest.model import MISSING, Entry, Signature
from tileops.manifest.typecheck import Type, infer
from tileops.manifest.values import canonical
from tileops.manifest.vocabulary import FLOATING, ITEMSIZE, RESERVED, is_name

__all__ = ["check_signature", "check_type", "dtypes_of"]


def check_signature(entry: Entry, report: Report) -> None:
    """Report wrong names, params, dtypes and rules. Shapes and effects have checks of their own."""
    signature = entry.signature
    _check_names(signature, report)
    _check_params(signature, report)
    _check_inputs(signature, report)
    _check_dtypes(signature, report)
    _check_rules(signature, report)
    if not signature.inputs and not signature.outputs:
        report.add(("signature",), "an op has an input or an output", "neither", "add what it has")
    if entry.accumulation_dtype is not None and entry.accumulation_dtype not in FLOATING:
        report.add(
            ("accumulation_dtype",),
            "accumulation_dtype is a floating-point dtype",
            repr(entry.accumulation_dtype),
            "leave it out where nothing is accumulated",
        )


def check_type(
    expression: Expression, names: Mapping[str, Type], kinds: str, where: Where, report: Report
) -> bool:
    """Report an expression that is not typed, or not of one of ``kinds`` (``int|float``)."""
    try:
        found = infer(expression, names)
    except ExpressionError as error:
        report.add_error(where, error, expression.source)
        return False
    if found.kind in kinds.split("|") and not found.optional:
        return True
    wanted = " or ".join(_WANTED[kind] for kind in kinds.split("|"))
    value = f"{expression.source!r}, {found}"
    report.add(where, f"{shown(where)} is {wanted}", value, f"write {wanted}")
    return False


_WANTED: Final = {"bool": "a condition", "int": "an int", "float": "a float"}


def _named(signature: Signature) -> Iterator[tuple[Where, str]]:
    for name in signature.dims:
        yield ("signature", "dims", name), name.removeprefix("*")
    for name in signature.dtypes:
        yield ("signature", "dtypes", name), name
    for section in ("params", "inputs", "ints", "outputs"):
        for at, value in enumerate(getattr(signature, section)):
            yield ("signature", section, at), value.name


def _check_names(signature: Signature, report: Report) -> None:
    named = list(_named(signature))
    counts = Counter(name for _, name in named)
    for where, name in named:
        if name in RESERVED or name in FUNCTIONS or name in ITEMSIZE or not is_name(name):
            why = "a name is not one that the generated code or the language uses itself"
            report.add(where, f"{shown(where)}: {why}", repr(name), "choose another")
        elif counts[name] > 1:
            why = "dims, dtype variables, params, inputs, ints and outputs have different names"
            report.add(where, why, f"{name!r} {counts[name]} times", "rename all but one")


def _check_params(signature: Signature, report: Report) -> None:
    defaulted: str | None = None
    named_only: str | None = None
    for at, param in enumerate(signature.params):
        where: Where = ("signature", "params", at)
        if param.type == "dtype" and param.choices is None:
            report.add(
                where,
                f"the dtype param {param.name!r} lists the dtypes that it takes",
                "no choices",
                'add choices = ["float32", …]',
            )
        if param.choices is not None and param.type not in ("str", "int", "dtype"):
            report.add(
                (*where, "choices"),
                "choices are of params of the types str, int and dtype",
                f"{param.name!r} of type {param.type!r}",
                "say it as a rule",
            )
        elif param.choices is not None:
            for choice in param.choices:
                _check_value(signature, at, choice, (*where, "choices"), report)
        if param.default is not MISSING and param.default is not None:
            _check_value(signature, at, param.default, (*where, "default"), report)
        if param.keyword_only:
            named_only = param.name
        elif named_only is not None:
            report.add(
                where,
                "params passed by name only come last",
                f"{param.name!r} after {named_only!r}",
                "move it before",
            )
        elif param.default is not MISSING:
            defaulted = param.name
        elif defaulted is not None:
            report.add(
                where,
                "a param without a default comes before those that have one",
                f"{param.name!r} after {defaulted!r}",
                "move it before, or make it keyword_only",
            )


def _check_value(
    signature: Signature, at: int, value: object, where: Where, report: Report
) -> None:
    try:
        canonical(signature.params[at], value)
    except ValueError as error:
        report.add(where, f"{shown(where)}: {error}", repr(value), "change it, or the type")


def _check_inputs(signature: Signature, report: Report) -> None:
    optional: str | None = None
    for at, value in enumerate(signature.inputs):
        if value.optional is not False:
            optional = value.name
        elif optional is not None:
            report.add(
                ("signature", "inputs", at),
                "an input that every call passes comes before those that may be left out",
                f"{value.name!r} after {optional!r}",
                "move it before",
            )


def dtypes_of(signature: Signature, dtype: str) -> tuple[str, ...] | None:
    """Return the dtypes that a tensor's ``dtype`` ranges over, or None where it is not declared."""
    if dtype in ITEMSIZE:
        return (dtype,)
    if dtype in signature.dtypes:
        return signature.dtypes[dtype]
    for param in signature.params:
        if param.name == dtype and param.type == "dtype":
            return tuple(param.choices or ())
    return None


def _check_dtypes(signature: Signature, report: Report) -> None:
    known = [*signature.dtypes, *(p.name for p in signature.params if p.type == "dtype")]
    for section in ("inputs", "outputs"):
        for at, value in enumerate(getattr(signature, section)):
            if dtypes_of(signature, value.dtype) is None:
                where: Where = ("signature", section, at, "dtype")
                report.add(
                    where,
                    f"{shown(where)} is a dtype, a declared dtype variable or a dtype param",
                    repr(value.dtype),
                    closest(value.dtype, [*known, *ITEMSIZE], "declare it in signature.dtypes"),
                )
    firm = {value.dtype for value in signature.inputs if value.optional is False}
    loose = {value.dtype for value in signature.inputs}
    for name in signature.dtypes:
        if name not in loose:
            report.add(
                ("signature", "dtypes", name),
                "a dtype variable is the dtype of an input",
                f"{name!r} is of none",
                "use it, or remove it",
            )
    for at, output in enumerate(signature.outputs):
        if output.dtype in signature.dtypes and output.dtype in loose - firm:
            report.add(
                ("signature", "outputs", at, "dtype"),
                f"the dtype of {output.name!r} is known in every call",
                f"{output.dtype!r}, which only optional inputs have",
                "use the dtype of an input that is always there",
            )
    _check_combinations(signature, report)


def _check_combinations(signature: Signature, report: Report) -> None:
    seen: list[dict[str, str]] = []
    for at, combination in enumerate(signature.combinations):
        where: Where = ("signature", "dtype_combinations", at)
        if combination.keys() != signature.combinations[0].keys():
            report.add(
                where,
                "every dtype combination names the same variables",
                ", ".join(combination),
                "name " + ", ".join(signature.combinations[0]),
            )
        for name, dtype in combination.items():
            allowed = signature.dtypes.get(name)
            if allowed is None:
                remedy = closest(name, signature.dtypes, "declare it in signature.dtypes")
                report.add(
                    (*where, name), "a combination names declared variables", repr(name), remedy
                )
            elif dtype not in allowed:
                report.add(
                    (*where, name),
                    f"{name} ranges over {', '.join(allowed)}",
                    repr(dtype),
                    closest(dtype, allowed),
                )
        if dict(combination) in seen:
            report.add(where, "a combination is listed once", "a second one", "remove it")
        seen.append(dict(combination))


def _check_rules(signature: Signature, report: Report) -> None:
    names = rule_names(signature)
    numbers = {name: kind for name, kind in names.items() if kind.kind != "presence"}
    for at, rule in enumerate(signature.rules):
        where: Where = ("signature", "rules", at)
        check_type(rule.require, names, "bool", (*where, "require"), report)
        try:
            fields = list(string.Formatter().parse(rule.message))
        except ValueError as error:
            report.add(
                (*where, "message"),
                f"{shown(where)}.message: {error}",
                brief(rule.message),
                "write {{ and }} for braces",
            )
            continue
        for _, field, spec, conversion in fields:
            if field is None:
                continue
            if field not in numbers or spec or conversion:
                report.add(
                    (*where, "message"),
                    f"{shown(where)}.message names params, dims and call-time numbers",
                    "{"
                    + field
                    + (f"!{conversion}" if conversion else "")
                    + (f":{spec}" if spec else "")
                    + "}",
                    closest(field, numbers),
                )
