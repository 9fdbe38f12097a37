"""What a run found, as text: a line a check, then what is broken and why what was left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tileops.core.contract.check import BLOCKED, BROKEN, HELD, NOT_APPLICABLE, OUTCOMES
from tileops.core.contract.report import NOTHING_CHECKED, findings, title, verdict

__all__ = ["table"]


def table(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    found = list(findings(report))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    for _, one in found:
        counts[one["check"]][one["outcome"]] += 1
        seconds[one["check"]] += one["seconds"]
    width = max([len("check"), *map(len, counts)])
    yield f"{'check':{width}}  " + "  ".join(f"{word:>14}" for word in (*OUTCOMES, "seconds"))
    for name, tally in counts.items():
        cells = [str(tally[word] or "-") for word in OUTCOMES]
        yield f"{name:{width}}  " + "  ".join(
            f"{cell:>14}" for cell in (*cells, f"{seconds[name]:.2f}")
        )
    yield ""
    yield from _cases(report)
    yield from _reasons(found)
    for problem in report["problems"]:
        yield f"CANNOT BE LOADED  {problem['what']}: {problem['reason']}"
    for outcome in (BROKEN, BLOCKED):
        for name, one in found:
            if one["outcome"] == outcome:
                yield f"{outcome.upper()}  {name}: {one['check']}: {one['detail']}"
    tally = Counter(one["outcome"] for _, one in found)
    told = ", ".join(f"{tally[word]} {word}" for word in OUTCOMES if tally[word])
    yield f"{told or 'nothing to check'}; {report['seconds']:.1f} s, seed {report['seed']}"
    if verdict(report) == NOTHING_CHECKED:
        yield "nothing was checked: no case was served, so this run shows nothing and fails"


def _cases(report: dict[str, Any]) -> Iterator[str]:
    unserved: Counter[str] = Counter()
    for row in report["subjects"]:
        if not row["serves"]:
            unserved[f"{row['op']} on {row['device']} by {row['target']}: {row['reason']}"] += 1
            continue
        tally = Counter(one["outcome"] for one in row["checks"])
        told = f"{tally[HELD]} held, {tally[NOT_APPLICABLE]} not applicable"
        for outcome in (BROKEN, BLOCKED):
            names = [one["check"] for one in row["checks"] if one["outcome"] == outcome]
            told += f", {outcome.upper()} {', '.join(names)}" if names else ""
        yield f"{title(row)}: {told}"
    yield ""
    for told, count in unserved.items():
        yield f"not served  {told} ({count})"
    if unserved:
        yield ""


def _reasons(found: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Why checks say nothing, each reason once with how many it is of."""
    reasons: Counter[tuple[str, str]] = Counter()
    for _, one in found:
        if one["outcome"] == NOT_APPLICABLE:
            reasons[one["check"], one["detail"]] += 1
    for (check, reason), count in reasons.items():
        yield f"not applicable  {check}: {reason} ({count})"
    if reasons:
        yield ""
