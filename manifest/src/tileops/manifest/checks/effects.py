"""Level 2: what a call writes, fills, aliases and leaves out."""

from __future__ import annotations

from tileops.manifest.branches import EffectError, branches
from tileops.manifest.checks.report import Report, Where, closest, shown
from tileops.manifest.checks.signature import check_type
from tileops.manifest.environments import condition_names, rule_names
from tileops.manifest.expressions import Expression
from tileops.manifest.model import Branch, Entry, Input, Output, Signature

__all__ = ["check_effects"]


def check_effects(entry: Entry, report: Report) -> tuple[Branch, ...]:
    """Report inconsistent effects, and return the branches (none where there are faults)."""
    before = len(report.faults)
    signature = entry.signature
    _check_conditions(signature, report)
    _check_outputs(signature, report)
    written = [value.name for value in signature.inputs if value.mutated is not False]
    if entry.composition and written:
        report.add(
            ("composition",),
            "a composite has no effects of its own: its sub-ops write",
            f"mutated inputs {', '.join(written)}",
            "remove `mutated`, or the composition",
        )
    if len(report.faults) > before:
        return ()
    try:
        return branches(entry.family, entry.snake, signature)
    except EffectError as error:
        report.add(("signature",), error.message, "", error.remedy)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # Rules take part in enumerating branches, and a faulty rule has been reported.
        if not report.faults:
            what = f"{type(error).__name__}: {error}"
            report.add(("signature",), "the effects can be enumerated", what, "simplify the rules")
    return ()


def _check_conditions(signature: Signature, report: Report) -> None:
    for at, value in enumerate(signature.inputs):
        for key in ("optional", "mutated"):
            condition = getattr(value, key)
            if isinstance(condition, Expression):
                _check_condition(signature, condition, ("signature", "inputs", at, key), report)
    for at, output in enumerate(signature.outputs):
        if output.when is not None:
            _check_condition(signature, output.when, ("signature", "outputs", at, "when"), report)


def _check_condition(
    signature: Signature, condition: Expression, where: Where, report: Report
) -> None:
    names = condition_names(signature)
    forbidden = sorted(condition.names & (rule_names(signature).keys() - names.keys()))
    if forbidden:
        report.add(
            where,
            f"{shown(where)} reads params and the presence of inputs: "
            "an operator's effects are fixed before any size is known",
            f"{condition.source!r} reads {', '.join(forbidden)}",
            "make it depend on a param",
        )
        return
    check_type(condition, names, "bool", where, report)


def _check_outputs(signature: Signature, report: Report) -> None:
    inputs = {value.name: value for value in signature.inputs}
    devices = [param.name for param in signature.params if param.type == "device"]
    aliased: dict[str, str] = {}
    buffered: str | None = None
    for at, output in enumerate(signature.outputs):
        where: Where = ("signature", "outputs", at)
        if output.alias is not None and output.buffer is not None:
            report.add(
                (*where, "buffer"),
                f"{output.name!r} is an alias or fills a buffer, never both",
                f"alias = {output.alias!r} and buffer = {output.buffer!r}",
                "remove one of them",
            )
        if output.alias is not None:
            _check_alias(output, inputs, (*where, "alias"), report)
            if output.alias in aliased:
                report.add(
                    (*where, "alias"),
                    "two outputs are never one tensor",
                    f"{aliased[output.alias]!r} and {output.name!r} both alias {output.alias!r}",
                    "return it once",
                )
            aliased[output.alias] = output.name
        if output.buffer is not None:
            if buffered is not None:
                report.add(
                    (*where, "buffer"),
                    "one output at most fills `out`",
                    f"{buffered!r} and {output.name!r}",
                    "remove one of the two",
                )
            buffered = output.name
        if output.device is not None and output.device not in devices:
            report.add(
                (*where, "device"),
                f"{shown(where)}.device is a param of type device",
                repr(output.device),
                closest(output.device, devices, "declare one in signature.params"),
            )
        if output.device is None and not signature.inputs:
            report.add(
                where,
                f"{output.name!r} has the device of the call's tensors, or a param's",
                "an op without inputs, and no device",
                'add device = "…"',
            )


def _check_alias(output: Output, inputs: dict[str, Input], where: Where, report: Report) -> None:
    target = inputs.get(output.alias or "")
    if target is None:
        report.add(
            where,
            f"{shown(where)} is an input",
            repr(output.alias),
            closest(output.alias or "", inputs),
        )
        return
    if target.mutated is False:
        report.add(
            where,
            f"{shown(where)} is an input that the op writes",
            f"{target.name!r}, which is never written",
            f"mark {target.name!r} as mutated, or remove the alias",
        )
    same = len(target.shapes) == 1 and list(map(str, target.shapes[0])) == list(
        map(str, output.shape)
    )
    if not same or target.dtype != output.dtype:
        shape = ", ".join(map(str, output.shape))
        theirs = " or ".join(f"[{', '.join(map(str, one))}]" for one in target.shapes)
        report.add(
            where,
            f"{output.name!r} has the shape and dtype of what it aliases, {target.dtype} {theirs}",
            f"{output.dtype} [{shape}]",
            "give both the same",
        )
