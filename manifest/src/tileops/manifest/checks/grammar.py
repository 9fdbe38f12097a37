"""Whether every expression of a document is one of the language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tileops.manifest.checks.report import Report, Where
from tileops.manifest.expressions import Expression, ExpressionError

__all__ = ["check_grammar", "expressions_of"]

GENERATOR_EXPRESSIONS: Final = ("each", "page_size", "below", "start", "value")


def check_grammar(document: Mapping[str, Any], report: Report) -> None:
    """Report every expression that does not parse."""
    for where, source in expressions_of(document):
        try:
            Expression(source)
        except ExpressionError as error:
            report.add_error(where, error, source)


def expressions_of(document: Mapping[str, Any]) -> Iterator[tuple[Where, str]]:
    """Yield every expression of a document that is valid by the schema, with its place."""
    signature = document["signature"]
    for at, row in enumerate(signature.get("inputs", [])):
        where: Where = ("signature", "inputs", at)
        yield from _strings(row, where, "optional", "mutated")
        yield from _items(row.get("shape", []), (*where, "shape"))
        for which, shape in enumerate(row.get("shapes", [])):
            yield from _items(shape, (*where, "shapes", which))
    for at, row in enumerate(signature.get("outputs", [])):
        where = ("signature", "outputs", at)
        yield from _strings(row, where, "when")
        yield from _items(row["shape"], (*where, "shape"))
    for at, row in enumerate(signature.get("rules", [])):
        yield from _strings(row, ("signature", "rules", at), "require")
    for at, row in enumerate(document.get("composition", [])):
        yield from _strings(row, ("composition", at), "count", "when")
    yield from _strings(document.get("roofline", {}), ("roofline",), "flops", "bytes")
    for at, row in enumerate(document.get("workloads", [])):
        for name, generator in row.get("generators", {}).items():
            where = ("workloads", at, "generators", name)
            yield from _strings(generator, where, *GENERATOR_EXPRESSIONS)


def _strings(row: Mapping[str, Any], where: Where, *keys: str) -> Iterator[tuple[Where, str]]:
    for key in keys:
        if isinstance(row.get(key), str):
            yield (*where, key), row[key]


def _items(shape: list[str | int], where: Where) -> Iterator[tuple[Where, str]]:
    for at, item in enumerate(shape):
        if isinstance(item, str) and not item.startswith("*"):
            yield (*where, at), item
