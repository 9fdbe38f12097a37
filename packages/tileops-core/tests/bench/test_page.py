"""Plots and the page that holds them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tileops.core.bench.page import page, write_page
from tileops.core.bench.plots import plots
from tileops.core.errors import BenchError

from .test_readings import REPORT


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BenchError) as raised:
        list(plots(REPORT))
    assert str(raised.value) == (
        "plots need matplotlib, which cannot be imported (import of matplotlib.figure halted; "
        "None in sys.modules); pip install 'tileops-core[bench]'"
    )


def test_the_page_needs_no_other_file_and_escapes_what_it_shows() -> None:
    report = {**REPORT, "surroundings": {**REPORT["surroundings"], "device": "<Card>"}}
    text = page(report, [("ratio", 'a "plot"', b"png")])
    assert "<p>&lt;Card&gt;, driver 1.2, torch 2.13, Python 3.12</p>" in text
    assert '<img alt="a &quot;plot&quot;" src="data:image/png;base64,cG5n">' in text
    assert '<td class="faster">0.500 faster</td>' in text
    assert "<p>quack missing: it has no AFwdOp for this call</p>" in text
    assert text.count("<tr>") == 5
    assert "http" not in text


def test_plots_lie_beside_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write_page(REPORT, tmp_path / "report.html")
    names = ["report.html", "report-AFwdOp-bandwidth.png", "report-AFwdOp-ratio.png"]
    assert [path.name for path in written] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:])
