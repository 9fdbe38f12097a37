"""Which contracts differ between two reports, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tileops.core.contract.report import title

__all__ = ["compare"]

Row = dict[str, Any]


def compare(old: Row, new: Row) -> Iterator[str]:
    """What changed from the old report to the new one, within what both were asked for."""
    if not old["complete"]:
        yield "the older run was interrupted: what it had not come to is said to have appeared"
    yield from _surroundings(old, new)
    more = sum(not _asked(row, old) for row in (*new["ops"], *new["subjects"]))
    if more:
        yield f"{more} ops and cases are not compared: the older run was not asked for them"
    changed = 0
    for line in (*_ops(old, new), *_subjects(old, new)):
        changed += 1
        yield line
    if not changed:
        yield "no contract changed"
    else:
        yield f"{changed} {'change' if changed == 1 else 'changes'}"


def _surroundings(old: Row, new: Row) -> Iterator[str]:
    for part in ("python", "system", "cuda", "versions"):
        before, after = old["surroundings"][part], new["surroundings"][part]
        if part == "versions":
            for name in sorted({*before, *after}):
                if before.get(name) != after.get(name):
                    yield _moved(name, before.get(name), after.get(name))
        elif before != after:
            yield _moved(part, before, after)
    for part in ("device", "name", "driver"):
        before, after = ([row[part] for row in one["devices"]] for one in (old, new))
        if before != after:
            yield _moved(f"devices' {part}", ", ".join(before), ", ".join(after))
    if old["targets"] != new["targets"]:
        yield _moved("targets", ", ".join(old["targets"]), ", ".join(new["targets"]))


def _moved(what: str, before: Any, after: Any) -> str:
    return f"{what}: {before or 'none'} before, {after or 'none'} now"


def _ops(old: Row, new: Row) -> Iterator[str]:
    before = {row["op"]: row for row in old["ops"] if _asked(row, new)}
    after = {row["op"]: row for row in new["ops"] if _asked(row, old)}
    for name, row in after.items():
        was = before.get(name)
        if was is None:
            yield f"{name}: appeared, with {', '.join(_names(row)) or 'no operator'}"
            continue
        yield from _operators(name, was, row)
        yield from _checks(name, was, row)
    for name in before.keys() - after.keys():
        yield f"{name}: vanished"


def _names(row: Row) -> list[str]:
    return [operator["name"] for operator in row["operators"]]


def _operators(name: str, was: Row, row: Row) -> Iterator[str]:
    before = {one["name"]: one for one in was["operators"]}
    after = {one["name"]: one for one in row["operators"]}
    for operator in after.keys() - before.keys():
        yield f"{name}: the operator {operator} appeared: {after[operator]['schema']}"
    for operator in before.keys() - after.keys():
        yield f"{name}: the operator {operator} vanished"
    for operator in after.keys() & before.keys():
        for part in ("schema", "tags"):
            one, other = before[operator][part], after[operator][part]
            if one != other:
                yield f"{name}: the {part} of {operator} changed: {one} before, {other} now"


def _subjects(old: Row, new: Row) -> Iterator[str]:
    before = {_key(row): row for row in old["subjects"] if _asked(row, new)}
    after = {_key(row): row for row in new["subjects"] if _asked(row, old)}
    for key, row in after.items():
        name, was = title(row), before.get(key)
        if was is None:
            yield f"{name}: appeared" + ("" if row["serves"] else f", not served: {row['reason']}")
            continue
        if was["serves"] != row["serves"]:
            now = "is served now" if row["serves"] else f"is no longer served: {row['reason']}"
            yield f"{name}: {now}"
            continue
        if was["default"] != row["default"]:
            yield f"{name}: {'is' if row['default'] else 'is no longer'} the default target's"
        if was["graph"] is not None and row["graph"] is not None:
            yield from _graph(name, was["graph"], row["graph"])
        yield from _checks(name, was, row)
    for key in before.keys() - after.keys():
        yield f"{title(before[key])}: vanished"


def _graph(name: str, before: list[str], after: list[str]) -> Iterator[str]:
    if before == after:
        return
    gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
    told = [f"{node} appeared" for node in come.elements()]
    told += [f"{node} vanished" for node in gone.elements()]
    yield f"{name}: the graph changed: {', '.join(told) or 'the same nodes in another order'}"


def _checks(name: str, was: Row, row: Row) -> Iterator[str]:
    before = {one["check"]: one for one in was["checks"]}
    after = {one["check"]: one for one in row["checks"]}
    for check, one in after.items():
        other = before.get(check)
        if other is None:
            yield f"{name}: {check} appeared: {_told(one)}"
        elif other["outcome"] != one["outcome"]:
            yield f"{name}: {check}: {other['outcome']} before, now {_told(one)}"
    for check in before.keys() - after.keys():
        yield f"{name}: {check} vanished; it was {_told(before[check])}"


def _told(one: Row) -> str:
    said = one["outcome"] not in ("held",) and one["detail"]
    return f"{one['outcome']}: {one['detail']}" if said else str(one["outcome"])


def _key(row: Row) -> tuple[str, ...]:
    # One card is as good as another: cuda:1 now is what cuda:0 was.
    kind = row["device"].partition(":")[0]
    return row["op"], row["case"], kind, row["target"]


def _asked(row: Row, report: Row) -> bool:
    """Whether the run of a report was asked for what a row of another is of."""
    asked = report["asked"]
    devices = {device.partition(":")[0] for device in asked["devices"]}
    return (
        (not asked["ops"] or row["op"] in asked["ops"])
        and (not asked["families"] or row["family"] in asked["families"])
        and ("device" not in row or row["device"].partition(":")[0] in devices)
        and ("target" not in row or not asked["targets"] or row["target"] in asked["targets"])
    )
