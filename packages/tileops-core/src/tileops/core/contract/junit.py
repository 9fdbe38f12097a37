"""The report as JUnit XML, which CI services show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

from tileops.core.contract.check import BLOCKED, BROKEN, NOT_APPLICABLE
from tileops.core.contract.files import replace
from tileops.core.contract.report import title

__all__ = ["write_junit"]


def write_junit(report: dict[str, Any], path: Path) -> None:
    """Writes a suite for each op, a test case for each check of each of its subjects.

    Raises:
        ContractError: the file cannot be written.
    """
    root = xml.Element("testsuites", name="tileops contract", time=f"{report['seconds']:.3f}")
    if report["problems"] or not report["complete"]:
        suite = _suite(root, "installed", report)
        for problem in report["problems"]:
            _add(_case(suite, "installed", problem["what"], 0.0), "error", problem["reason"])
        if not report["complete"]:
            _add(_case(suite, "installed", "the run", 0.0), "error", "it was interrupted")
        _count(suite)
    for op in report["ops"]:
        suite = _suite(root, op["op"], report)
        place = f"tileops.contract.{op['family']}.{op['op']}"
        _checks(suite, place, op["op"], op["checks"])
        for row in report["subjects"]:
            if row["op"] != op["op"]:
                continue
            if not row["serves"]:
                _add(_case(suite, place, title(row), 0.0), "skipped", row["reason"])
            _checks(suite, place, title(row), row["checks"])
        _count(suite)
    _count(root)
    xml.indent(root)
    replace(path, xml.tostring(root, encoding="utf-8", xml_declaration=True))


def _suite(root: xml.Element, name: str, report: dict[str, Any]) -> xml.Element:
    return xml.SubElement(root, "testsuite", name=name, timestamp=report["date"])


def _case(suite: xml.Element, place: str, name: str, seconds: float) -> xml.Element:
    return xml.SubElement(
        suite, "testcase", classname=place, name=_printable(name), time=f"{seconds:.4f}"
    )


def _checks(suite: xml.Element, place: str, name: str, checks: Sequence[dict[str, Any]]) -> None:
    for one in checks:
        case = _case(suite, place, f"{name}: {one['check']}", one["seconds"])
        if one["outcome"] in (BROKEN, BLOCKED):
            _add(case, "failure", one["detail"], type=one["outcome"])
        elif one["outcome"] == NOT_APPLICABLE:
            _add(case, "skipped", one["detail"])


def _add(case: xml.Element, tag: str, text: str, **more: str) -> None:
    first = _printable(text.partition("\n")[0])
    element = xml.SubElement(case, tag, {"message": first, **more})
    element.text = _printable(text)


def _count(element: xml.Element) -> None:
    """Sums up what lies below, which CI services read instead of counting."""
    found = list(element.iter("testcase"))
    element.set("tests", str(len(found)))
    for word, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(word, str(sum(case.find(tag) is not None for case in found)))


def _printable(text: str) -> str:
    """``text`` without the characters that XML 1.0 has no way to write."""
    return "".join(
        c
        if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff")
        else "?"
        for c in text
    )
