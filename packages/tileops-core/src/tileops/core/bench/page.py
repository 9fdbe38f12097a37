"""A report as one HTML file that needs no other."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tileops.core.bench.plots import plots
from tileops.core.bench.readings import readings, table
from tileops.core.errors import BenchError

__all__ = ["page", "write_page"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }
table { border-collapse: collapse; font-size: 13px; margin: 0 0 1.5em; width: 100% }
th, td { border-bottom: 1px solid #ddd; padding: 3px 8px; text-align: right }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left }
td.faster { color: #00684a } td.slower { color: #a63d00 } td.tie { color: #666 }
img { display: block; margin: 1em 0; max-width: 100% }
"""


def write_page(report: dict[str, Any], path: Path) -> list[Path]:
    """Writes the page, and beside it each plot as PNG; what was written.

    Raises:
        BenchError: matplotlib is not installed, or a file cannot be written.
    """
    pictures = list(plots(report))
    written = [path]
    try:
        path.write_text(page(report, pictures), encoding="utf-8")
        for name, _, png in pictures:
            beside = path.with_name(f"{path.stem}-{name}.png")
            beside.write_bytes(png)
            written.append(beside)
    except OSError as error:
        raise BenchError(f"the page cannot be written: {error}") from error
    return written


def page(report: dict[str, Any], pictures: list[tuple[str, str, bytes]]) -> str:
    """The page's text, the pictures inside it."""
    return "\n".join(_page(report, pictures))


def _page(report: dict[str, Any], pictures: list[tuple[str, str, bytes]]) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f"<title>TileOPs benchmark</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield "<h1>TileOPs benchmark</h1>"
    for line in table({**report, "rows": [], "overhead": []}):
        yield f"<p>{html.escape(line)}</p>"
    for session in report["sessions"]:
        if session["clocks"]:
            found = ", ".join(f"{name} {value}" for name, value in session["clocks"].items())
            yield f"<p>As found: {html.escape(found)}</p>"
    for _, description, png in pictures:
        data = base64.b64encode(png).decode()
        yield f'<img alt="{html.escape(description)}" src="data:image/png;base64,{data}">'
    for row in report["rows"]:
        yield from _row(row)
    lines = table({**report, "rows": [], "sessions": []})[1:]
    if lines:
        yield f"<pre>{html.escape(chr(10).join(lines))}</pre>"
    yield "</body>\n</html>"


def _row(row: dict[str, Any]) -> Iterator[str]:
    yield f"<h2>{html.escape(row['op'])} {html.escape(row['workload'])}</h2>"
    shapes = ", ".join(f"{name} {f['dtype']}{f['shape']}" for name, f in row["inputs"].items())
    least = f"{row['limit']['seconds'] * 1e6:.2f} µs by {row['limit']['bound']}"
    yield f"<p>{html.escape(row['model'])}, {html.escape(row['phase'])}: {html.escape(shapes)}; "
    yield f"{row['bytes']:,} bytes, {row['flops']:,} flops, at least {least}.</p>"
    yield "<table><tr><th></th><th>measure</th><th>median µs</th><th>spread</th>"
    yield "<th>of the limit</th><th>ours over its</th></tr>"
    for one in readings(row):
        share = "" if one.share is None else f"{one.share:.1%}"
        ratio = "" if one.ratio is None else f"{one.ratio:.3f} {one.word}"
        yield f"<tr><td>{html.escape(one.subject)}</td><td>{one.measure}</td>"
        yield f"<td>{one.seconds * 1e6:.2f}</td><td>{one.spread:.1%}</td><td>{share}</td>"
        yield f'<td class="{one.word}">{ratio}</td></tr>'
    yield "</table>"
    for subject in row["subjects"]:
        if subject["status"] != "timed":
            why = f"{subject['name']} {subject['status']}: {subject['problem']}"
            yield f"<p>{html.escape(why)}</p>"
