"""Level 2: workloads inside the rules, a roofline that evaluates, tolerances of real outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tileops.manifest.calls import Call, fixed_rank, least_work, resolve
from tileops.manifest.checks.report import Report, Where, brief, closest, shown
from tileops.manifest.checks.signature import check_type, dtypes_of
from tileops.manifest.environments import bound_by, roofline_names
from tileops.manifest.expressions import Expression
from tileops.manifest.generators import GeneratorError
from tileops.manifest.model import MISSING, Entry, Input, Output, Workload
from tileops.manifest.values import canonical
from tileops.manifest.vocabulary import FLOATING, INTEGRAL

__all__ = ["check_roofline", "check_tolerances", "check_workloads"]


def check_roofline(entry: Entry, report: Report) -> None:
    """Report a roofline that is not typed."""
    names = roofline_names(entry.signature)
    for key in ("flops", "bytes"):
        expression = getattr(entry.roofline, key)
        if expression is not None:
            check_type(expression, names, "int|float", ("roofline", key), report)


def check_tolerances(entry: Entry, report: Report) -> None:
    """Report tolerances of what is no result, and outputs of an implemented op without one.

    A written input is a result too. Where no output stands for it, it may have tolerances of its
    own; without any it is compared exactly, as a cache that is written by copying should be.
    """
    aliased = {output.alias for output in entry.signature.outputs}
    written = [
        spec
        for spec in entry.signature.inputs
        if spec.mutated is not False and spec.name not in aliased
    ]
    specs: list[Input | Output] = [*entry.signature.outputs, *written]
    outputs = {spec.name: spec for spec in specs}
    seen: set[tuple[str, str]] = set()
    for at, tolerance in enumerate(entry.tolerances):
        where: Where = ("tolerances", at)
        output = outputs.get(tolerance.output)
        if output is None:
            remedy = closest(tolerance.output, outputs)
            report.add(
                (*where, "output"),
                "a tolerance is of an output, or of a written input that no output stands for",
                repr(tolerance.output),
                remedy,
            )
            continue
        allowed = dtypes_of(entry.signature, output.dtype) or ()
        if tolerance.dtype not in allowed:
            report.add(
                (*where, "dtype"),
                f"{output.name} is {' or '.join(allowed)}",
                repr(tolerance.dtype),
                closest(tolerance.dtype, allowed),
            )
        if (tolerance.output, tolerance.dtype) in seen:
            report.add(
                where, f"{output.name} has one tolerance for {tolerance.dtype}", "two", "remove one"
            )
        seen.add((tolerance.output, tolerance.dtype))
    if entry.status == "implemented":
        for output in entry.signature.outputs:
            missing = [
                dtype
                for dtype in dtypes_of(entry.signature, output.dtype) or ()
                if dtype in FLOATING and (output.name, dtype) not in seen
            ]
            if missing:
                report.add(
                    ("tolerances",),
                    f"an implemented op says how far {output.name} may lie from its formula",
                    f"none for {', '.join(missing)}",
                    "add [[tolerances]]",
                )


def check_workloads(entry: Entry, report: Report, *, sound: bool) -> None:
    """Report workloads that are no valid call, as far as the signature is ``sound``.

    Against a faulty signature a workload that is right would look wrong.
    """
    labels: set[str] = set()
    if entry.status == "implemented" and not entry.workloads:
        report.add((), "an implemented op has a workload", "none", "add [[workloads]]")
    for at, workload in enumerate(entry.workloads):
        where: Where = ("workloads", at)
        if workload.label in labels:
            report.add(
                (*where, "label"), "labels differ", f"{workload.label!r} twice", "rename one"
            )
        labels.add(workload.label)
        if not sound:
            continue
        before = len(report.faults)
        _check_given(entry, workload, where, report)
        if len(report.faults) == before:
            _check_call(entry, workload, where, report)


def _check_given(entry: Entry, workload: Workload, where: Where, report: Report) -> None:
    signature = entry.signature
    params = {param.name: param for param in signature.params}
    _known(workload.params, params, (*where, "params"), "a param", report)
    for name, param in params.items():
        if name in workload.params:
            try:
                canonical(param, workload.params[name])
            except ValueError as error:
                value = repr(workload.params[name])
                report.add((*where, "params", name), str(error), value, "change it")
        elif param.default is MISSING:
            report.add(where, f"a workload gives the param {name}", "none", "add it to params")
    optional = [value.name for value in signature.inputs if value.optional is not False]
    _known(workload.present, optional, (*where, "present"), "an optional input", report)
    passed = [
        value
        for value in signature.inputs
        if value.optional is False or value.name in workload.present
    ]
    _check_ranks(workload, passed, where, report)
    free = {
        name.removeprefix("*"): name.startswith("*")
        for name in signature.dims
        if any(value in passed for value in bound_by(signature, name.removeprefix("*")))
    }
    _known(workload.dims, free, (*where, "dims"), "a dim of the tensors passed", report)
    for name, variadic in free.items():
        if name not in workload.dims:
            report.add(where, f"a workload gives the size of {name}", "none", "add it to dims")
        elif isinstance(workload.dims[name], tuple) != variadic:
            what = "an array of sizes" if variadic else "a size"
            value = repr(workload.dims[name])
            report.add((*where, "dims", name), f"{name} is {what}", value, f"write {what}")
    ints = [number.name for number in signature.ints]
    _known(workload.ints, ints, (*where, "ints"), "a call-time number", report)
    for number in signature.ints:
        if number.name not in workload.ints and number.default is MISSING:
            report.add(where, f"a workload gives {number.name}", "none", "add it to ints")
    _check_dtypes(entry, workload, passed, where, report)
    _check_generators(entry, workload, passed, where, report)
    _check_scales(entry, workload, passed, where, report)


def _known(
    given: Collection[str] | Mapping[str, Any],
    known: Collection[str] | Mapping[str, Any],
    where: Where,
    what: str,
    report: Report,
) -> None:
    for name in given:
        if name not in known:
            place = (*where, name) if isinstance(given, Mapping) else where
            report.add(place, f"{shown(where)} names {what}", repr(name), closest(name, known))


def _check_ranks(workload: Workload, passed: list[Input], where: Where, report: Report) -> None:
    several = {value.name: value for value in passed if len(value.shapes) > 1}
    where = (*where, "ranks")
    _known(workload.ranks, several, where, "an input with alternative shapes", report)
    for name, rank in workload.ranks.items():
        shapes = several[name].shapes if name in several else ()
        fixed = [str(found) for found in map(fixed_rank, shapes) if found is not None]
        if shapes and str(rank) not in fixed:
            listed = " or ".join(fixed)
            report.add((*where, name), f"{name} has {listed} axes", str(rank), f"write {listed}")


def _check_dtypes(
    entry: Entry, workload: Workload, passed: list[Input], where: Where, report: Report
) -> None:
    variables = entry.signature.dtypes
    needed = {value.dtype for value in passed if value.dtype in variables}
    where = (*where, "dtypes")
    _known(workload.dtypes, needed, where, "a dtype variable of the tensors passed", report)
    for name in sorted(needed):
        dtype = workload.dtypes.get(name)
        if dtype is None:
            report.add(where, f"a workload gives the dtype of {name}", "none", "add it to dtypes")
        elif dtype not in variables[name]:
            allowed = variables[name]
            report.add(
                (*where, name),
                f"{name} ranges over {', '.join(allowed)}",
                repr(dtype),
                closest(dtype, allowed),
            )
    combinations = entry.signature.combinations
    chosen = {name: workload.dtypes[name] for name in needed if name in workload.dtypes}
    if combinations and not any(
        all(chosen.get(name, dtype) == dtype for name, dtype in combination.items())
        for combination in combinations
    ):
        listed = ", ".join(f"{name} = {dtype}" for name, dtype in sorted(chosen.items()))
        report.add(
            where, "a workload's dtypes are one of the combinations", listed, "take a listed one"
        )


def _check_generators(
    entry: Entry, workload: Workload, passed: list[Input], where: Where, report: Report
) -> None:
    integral = {
        value.name: value
        for value in passed
        if set(dtypes_of(entry.signature, value.dtype) or ()) <= INTEGRAL
    }
    place = (*where, "generators")
    # A floating input is drawn at random, unless its values may not be any: a variance, say.
    every = {value.name: value for value in passed}
    _known(workload.generators, every, place, "an input that is passed", report)
    for name in integral:
        if name not in workload.generators:
            report.add(
                where,
                f"a workload says how {name} is made, which carries values",
                "no generator",
                f"add generators.{name} = {{ kind = … }}",
            )


def _check_scales(
    entry: Entry, workload: Workload, passed: list[Input], where: Where, report: Report
) -> None:
    drawn = [
        value.name
        for value in passed
        if value.name not in workload.generators
        and not INTEGRAL & set(dtypes_of(entry.signature, value.dtype) or ())
    ]
    place = (*where, "scales")
    _known(workload.scales, drawn, place, "a floating input that is drawn at random", report)
    for name, scale in workload.scales.items():
        if not scale > 0:
            report.add((*place, name), "a scale is above 0", str(scale), "write a number above 0")


def _check_call(entry: Entry, workload: Workload, where: Where, report: Report) -> None:
    try:
        call = resolve(entry, workload)
        _check_rules(entry, workload, call, where, report)
    except GeneratorError as error:
        name, _, why = str(error).partition(": ")
        place = (*where, "generators", name)
        requirement = f"{shown(place)} makes the values of the call"
        report.add(place, requirement, why, "mend the generator or the dims")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # An index that is out of a shape, say: types are known before sizes are.
        report.add(
            where,
            f"the workload {workload.label!r} can be evaluated",
            f"{type(error).__name__}: {error}",
            "add a rule before the one that fails, or change the workload",
        )


def _check_rules(
    entry: Entry, workload: Workload, call: Call, where: Where, report: Report
) -> None:
    for value in entry.signature.inputs:
        absent = call.inputs[value.name] is None
        condition = value.optional
        if absent and isinstance(condition, Expression) and not condition.evaluate(call.names):
            report.add(
                (*where, "present"),
                f"{value.name} may be left out only where {condition}",
                f"the workload {workload.label!r} without it",
                "add it to present",
            )
            return
    for rule in entry.signature.rules:
        if not rule.require.evaluate(call.names):
            report.add(
                where,
                f"the workload {workload.label!r} meets the rules",
                f"one that fails {brief(rule.require.source)}: {rule.message.format(**call.names)}",
                "mend the workload or the rule",
            )
            return
    _check_results(entry, workload, call, where, report)


def _check_results(
    entry: Entry, workload: Workload, call: Call, where: Where, report: Report
) -> None:
    for name, facts in {**call.inputs, **call.outputs}.items():
        if facts is not None and any(size < 0 for size in facts.shape):
            report.add(
                where, f"{name} has sizes of at least 0", str(list(facts.shape)), "mend the dims"
            )
            return
    work = least_work(entry, call)
    if min(work) < 0:
        report.add(
            ("roofline",),
            f"flops and bytes of the workload {workload.label!r} are at least 0",
            f"{work[0]} and {work[1]}",
            "mend the roofline",
        )
