"""Which rows of two reports moved beyond the noise of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tileops.core.bench.readings import noise, readings
from tileops.core.bench.reports import find_row
from tileops.core.bench.samples import median, spread

__all__ = ["compare"]


def compare(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What moved, what there is no pair for, and how much was compared.

    A time moved where it changed by more than both runs' noise floors together, a peer's by its
    own spreads where those are larger. Costs of starts and calls are compared by their spreads.
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
    for line, is_move in _costs(old["overhead"], new["overhead"]):
        pairs += is_move is not None
        moved += is_move is True
        if line:
            yield line
    yield f"{moved} of {pairs} times moved"


def _costs(
    old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> Iterator[tuple[str, bool | None]]:
    """Lines on the costs of starts and calls, and whether one moved; None where there is no pair.

    The noise of a cost is its spread: one that has a single sample has none, and is shown without
    a judgement. Numbers of graphs have no noise.
    """
    before = {item["what"]: item for item in old}
    for item in new:
        was = before.pop(item["what"], None)
        if was is None:
            yield f"{item['what']}: not in the old report", None
            continue
        if not was["samples"] or not item["samples"]:
            if was["samples"] or item["samples"]:
                yield (
                    f"{item['what']}: failed in {'this' if was['samples'] else 'the old'} run",
                    None,
                )
            continue
        first, second = median(was["samples"]), median(item["samples"])
        if item["unit"] != "s":
            text = f"{item['what']}: {first:g} before, {second:g} now"
            yield text if first != second else "", first != second
            continue
        text = f"{item['what']}: {first * 1e3:.3f} ms before, {second * 1e3:.3f} now"
        if min(len(was["samples"]), len(item["samples"])) < 2:
            yield f"{text} (one sample each has no noise to judge by)", None
            continue
        ratio, floor = second / first, spread(was["samples"]) + spread(item["samples"])
        move = max(ratio, 1 / ratio) - 1 > floor
        how = f"{'slower' if ratio > 1 else 'faster'} by {abs(ratio - 1):.1%} (noise {floor:.1%})"
        yield f"{text}, {how}" if move else "", move
    for what in before:
        yield f"{what}: not in the new report", None


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value) or "none"
