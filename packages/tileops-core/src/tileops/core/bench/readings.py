"""What a report says, computed from its samples: times, shares of the limit, ratios, ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tileops.core.bench.samples import median, noise_floor, spread, verdict

__all__ = ["Reading", "noise", "primary", "readings", "table"]


class Reading(NamedTuple):
    """One subject by one measure.

    ``share`` is the part of the limit that it reaches, where the measure is of the device or of a
    whole call; ``ratio`` our time over its, ``word`` what that means beyond the noise.
    """

    subject: str
    measure: str
    seconds: float
    spread: float
    share: float | None
    ratio: float | None
    word: str


def primary(row: dict[str, Any]) -> str:
    """The measure that a row is judged by first."""
    return "device" if any("device" in s["samples"] for s in row["subjects"]) else "call"


def noise(row: dict[str, Any], measure: str) -> float:
    """The noise floor of a row's measure, from the op timed twice; 0 where it was not."""
    ours = _ours(row)
    if measure not in ours:
        return 0.0
    return noise_floor(ours[measure], row["again"].get(measure) or ours[measure])


def _ours(row: dict[str, Any]) -> dict[str, list[float]]:
    for subject in row["subjects"]:
        if subject["name"] == "tileops":
            samples: dict[str, list[float]] = subject["samples"]
            return samples
    return {}


def readings(row: dict[str, Any]) -> Iterator[Reading]:
    """Every subject that was timed, by every measure."""
    ours = _ours(row)
    for subject in row["subjects"]:
        for measure, samples in subject["samples"].items():
            seconds = median(samples)
            ratio, word = None, ""
            if subject["name"] != "tileops" and measure in ours:
                ratio = median(ours[measure]) / seconds
                floor = max(noise(row, measure), spread(samples))
                word = verdict(ratio, floor)
            limited = measure in ("device", "call", "call_compiled")
            share = row["limit"]["seconds"] / seconds if limited else None
            yield Reading(subject["name"], measure, seconds, spread(samples), share, ratio, word)


def table(report: dict[str, Any]) -> list[str]:
    """The report as lines for a terminal; times in microseconds."""
    lines = [_surroundings(report["surroundings"])]
    for session in report["sessions"]:
        rates = ", ".join(
            f"{dtype} {rate / 1e12:.4g} TFLOP/s" for dtype, rate in session["rates"].items()
        )
        copied = f"{session['bandwidth'] / 1e9:.4g} GB/s copied"
        lines.append(f"{session['date']}: {copied}{', ' if rates else ''}{rates}")
    for row in report["rows"]:
        lines += ["", f"{row['op']} {row['workload']}: {_work(row)}"]
        lines.append(
            f"  {'':14}{'measure':15}{'median us':>11}{'spread':>8}{'of limit':>10}  ours/its"
        )
        for reading in readings(row):
            share = "" if reading.share is None else f"{reading.share:.1%}"
            ratio = "" if reading.ratio is None else f"{reading.ratio:.3f} {reading.word}"
            line = f"  {reading.subject:14}{reading.measure:15}{reading.seconds * 1e6:11.2f}"
            lines.append(f"{line}{reading.spread:8.1%}{share:>10}  {ratio}".rstrip())
        for subject in row["subjects"]:
            if subject["status"] != "timed":
                lines.append(f"  {subject['name']:14}{subject['status']}: {subject['problem']}")
    return [*lines, *_overhead(report["overhead"])]


def _surroundings(found: dict[str, Any]) -> str:
    parts = [found["device"], found["driver"] and f"driver {found['driver']}"]
    parts += [f"{name} {version}" for name, version in found["versions"].items()]
    return ", ".join(part for part in [*parts, f"Python {found['python']}"] if part)


def _work(row: dict[str, Any]) -> str:
    inputs = ", ".join(
        f"{name} {facts['dtype']}{facts['shape']}" for name, facts in row["inputs"].items()
    )
    least = f"at least {row['limit']['seconds'] * 1e6:.2f} us by {row['limit']['bound']}"
    return f"{inputs}; {row['bytes']} bytes, {row['flops']} flops, {least}"


def _overhead(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    if found:
        yield ""
        yield "what a start and a call cost"
    width = max((len(item["what"]) for item in found), default=0)
    for item in found:
        title = f"  {item['what']:{width}}  "
        if item["problem"]:
            yield f"{title}failed: {item['problem']}"
        elif item["unit"] == "s":
            wide = f" (spread {spread(item['samples']):.1%})" if len(item["samples"]) > 1 else ""
            yield f"{title}{median(item['samples']) * 1e3:12.3f} ms{wide}"
        else:
            yield f"{title}{median(item['samples']):12g}"
