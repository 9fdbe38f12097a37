"""Which rows of two reports moved beyond the noise of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tileops.core.bench.readings import noise, readings
from tileops.core.bench.reports import find_row

__all__ = ["compare"]


def compare(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What moved, what there is no pair for, and how much was compared.

    A time moved where it changed by more than both runs' noise floors together, a peer's by its
    own spreads where those are larger.
    """
    for part in ("device", "driver", "versions", "python", "threads"):
        before, after = old["surroundings"][part], new["surroundings"][part]
        if before != after:
            yield f"{part}: {_text(before)} before, {_text(after)} now"
    pairs = moved = 0
    for row in new["rows"]:
        title = f"{row['op']} {row['workload']}"
        other = find_row(old, row["op"], row["workload"])
        if other is None:
            yield f"{title}: not in the old report"
            continue
        if (other["inputs"], other["bytes"]) != (row["inputs"], row["bytes"]):
            yield f"{title}: the workload is another one now"
            continue
        before = {(one.subject, one.measure): one for one in readings(other)}
        for reading in readings(row):
            was = before.get((reading.subject, reading.measure))
            if was is None:
                continue
            pairs += 1
            floor = max(noise(other, was.measure), was.spread)
            floor += max(noise(row, reading.measure), reading.spread)
            ratio = reading.seconds / was.seconds
            if max(ratio, 1 / ratio) - 1 <= floor:
                continue
            moved += 1
            yield (
                f"{title} {reading.subject} {reading.measure}: {was.seconds * 1e6:.2f} us before, "
                f"{reading.seconds * 1e6:.2f} now, {'slower' if ratio > 1 else 'faster'} by "
                f"{abs(ratio - 1):.1%} (noise {floor:.1%})"
            )
    for row in old["rows"]:
        if find_row(new, row["op"], row["workload"]) is None:
            yield f"{row['op']} {row['workload']}: not in the new report"
    yield f"{moved} of {pairs} times moved"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value) or "none"
