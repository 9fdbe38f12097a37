"""Plots of a report: bandwidth against size, and our time over others'."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from tileops.core.bench.readings import Reading, noise, primary, readings
from tileops.core.errors import BenchError

__all__ = ["figure_class", "plots"]

MARKERS = "osD^vPX"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999")


def figure_class() -> Any:
    """Matplotlib's figure.

    Raises:
        BenchError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchError(
            f"plots need matplotlib, which cannot be imported ({error}); "
            f"pip install 'tileops-core[bench]'"
        ) from error
    return Figure


def plots(report: dict[str, Any]) -> Iterator[tuple[str, str, bytes]]:
    """Name, description and PNG of each plot that the report has the figures for.

    Raises:
        BenchError: matplotlib is not installed.
    """
    new_figure = figure_class()
    rows = [row for row in report["rows"] if row["subjects"][0]["samples"]]
    names = list(dict.fromkeys(s["name"] for row in rows for s in row["subjects"] if s["samples"]))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    for op in dict.fromkeys(row["op"] for row in rows):
        chosen = sorted((row for row in rows if row["op"] == op), key=lambda row: row["bytes"])
        figure = new_figure(figsize=(8, 4.5), layout="constrained")
        _bandwidth(figure.subplots(), op, chosen, report, colours)
        yield f"{op}-bandwidth", f"{op}: bandwidth against the bytes of a call", _png(figure)
        if any(reading.ratio is not None for row in chosen for reading in _judged(row)):
            figure = new_figure(figsize=(8, 1.4 + 0.32 * _bars(chosen)), layout="constrained")
            _ratios(figure.subplots(), op, chosen, colours)
            yield f"{op}-ratio", f"{op}: others' times over ours", _png(figure)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _judged(row: dict[str, Any]) -> list[Reading]:
    """One reading of each subject: the row's first measure, compiled calls where that is all."""
    wanted = primary(row)
    found: dict[str, Reading] = {}
    for reading in readings(row):
        if reading.measure in (wanted, f"{wanted}_compiled"):
            found.setdefault(reading.subject, reading)
    return list(found.values())


def _bandwidth(
    axes: Any, op: str, rows: list[dict[str, Any]], report: dict[str, Any], colours: dict[str, str]
) -> None:
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for reading in _judged(row):
            point = (row["bytes"], row["bytes"] / reading.seconds / 1e9)
            lines.setdefault(reading.subject, []).append(point)
    # Points and no lines: workloads of one size but other shapes have a point each.
    for at, (subject, points) in enumerate(lines.items()):
        sizes, rates = zip(*points, strict=True)
        marker = MARKERS[at % len(MARKERS)]
        axes.scatter(
            sizes, rates, s=28, alpha=0.8, marker=marker, label=subject, color=colours[subject]
        )
    ceiling = max(session["bandwidth"] for session in report["sessions"]) / 1e9
    axes.axhline(ceiling, color="black", linestyle="--", linewidth=1, label="a large copy")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("least bytes of the call")
    axes.set_ylabel("GB/s")
    axes.xaxis.set_major_formatter(lambda value, _: _size(value))
    axes.set_title(
        f"{op}, {report['surroundings']['device']} ({primary(rows[0])} time)", fontsize=10
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} GiB"


def _bars(rows: list[dict[str, Any]]) -> int:
    return sum(1 for row in rows for reading in _judged(row) if reading.ratio is not None) + len(
        rows
    )


def _ratios(axes: Any, op: str, rows: list[dict[str, Any]], colours: dict[str, str]) -> None:
    """A bar for each other: above 1 we are faster; the grey band is the noise."""
    at, ticks, labels, shown = 0.0, [], [], set()
    for row in rows:
        first = at
        for reading in _judged(row):
            if reading.ratio is None:
                continue
            label = None if reading.subject in shown else reading.subject
            shown.add(reading.subject)
            ratio = 1 / reading.ratio
            axes.barh(at, ratio, 0.8, color=colours[reading.subject], label=label)
            note = " tie" if reading.word == "tie" else ""
            # Beyond the line at 1, which would strike through it.
            axes.text(max(ratio, 1), at, f" {ratio:.2f}{note}", va="center", fontsize=7)
            at += 1
        if at == first:
            continue
        floor = noise(row, primary(row))
        low, high = 1 / (1 + floor), 1 + floor
        axes.fill_betweenx([first - 0.5, at - 0.5], low, high, color="grey", alpha=0.4)
        ticks.append((first + at - 1) / 2)
        labels.append(row["workload"])
        at += 1
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    axes.set_xlabel("its time over ours")
    axes.set_title(f"{op}: above 1 the op is faster", fontsize=10)
    axes.figure.legend(fontsize=8, loc="outside lower center", ncols=4)
