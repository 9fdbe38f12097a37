"""From a parsed TOML document to the frozen model.

The document is valid by the schema: what is wrong with one the checks have found and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from tileops.manifest import model
from tileops.manifest.expressions import Expression
from tileops.manifest.lines import Lines
from tileops.manifest.names import snake_case

__all__ = ["build_entry", "shape_item"]

T = TypeVar("T")


def build_entry(
    document: Mapping[str, Any], lines: Lines, path: Path, namespace: str
) -> model.Entry:
    """Return the entry that a document describes, without its effect branches.

    The document is valid by the schema, and its expressions are of the language.
    """
    return _Builder(document, lines, path, namespace).entry()


class _Builder:
    def __init__(
        self, document: Mapping[str, Any], lines: Lines, path: Path, namespace: str
    ) -> None:
        self.document = document
        self.lines = lines
        self.path = path
        self.namespace = namespace

    def entry(self) -> model.Entry:
        document = self.document
        snake = document.get("snake") or snake_case(document["name"])
        signature = self.signature(document["signature"])
        roofline = document.get("roofline", {})
        return model.Entry(
            name=document["name"],
            family=document["family"],
            namespace=self.namespace,
            snake=snake,
            status=document["status"],
            since=document["since"],
            summary=document["summary"],
            formula=document["formula"].strip(),
            reference=document["reference"],
            accumulation_dtype=document.get("accumulation_dtype"),
            signature=signature,
            composition=self.each(document, ("composition",), _sub_op),
            workloads=self.each(document, ("workloads",), _workload),
            roofline=model.Roofline(_maybe(roofline.get("flops")), _maybe(roofline.get("bytes"))),
            tolerances=self.each(document, ("tolerances",), _tolerance),
            branches=(),
            path=self.path,
            document=document,
        )

    def signature(self, table: Mapping[str, Any]) -> model.Signature:
        at = ("signature",)
        params = self.each(table, (*at, "params"), _param)
        kinds = {param.name: param for param in params}
        dims = table.get("dims", {})

        def shape(items: list[str | int]) -> model.Shape:
            return tuple(shape_item(item, dims, kinds) for item in items)

        def read_input(row: Mapping[str, Any], line: int) -> model.Input:
            shapes = row["shapes"] if "shapes" in row else [row["shape"]]
            return model.Input(
                name=row["name"],
                dtype=row["dtype"],
                shapes=tuple(map(shape, shapes)),
                doc=row.get("doc", ""),
                optional=_condition(row.get("optional", False)),
                mutated=_condition(row.get("mutated", False)),
                line=line,
            )

        def read_output(row: Mapping[str, Any], line: int) -> model.Output:
            return model.Output(
                name=row["name"],
                dtype=row["dtype"],
                shape=shape(row["shape"]),
                doc=row.get("doc", ""),
                alias=row.get("alias"),
                buffer=row.get("buffer"),
                when=_maybe(row.get("when")),
                device=row.get("device"),
                line=line,
            )

        def read_rule(row: Mapping[str, Any], line: int) -> model.Rule:
            require = Expression(row["require"])
            phase = "construction" if require.names <= kinds.keys() else "call"
            return model.Rule(require, row["message"], phase, line)  # type: ignore[arg-type]

        return model.Signature(
            dims=MappingProxyType(dims),
            dtypes=MappingProxyType({k: tuple(v) for k, v in table.get("dtypes", {}).items()}),
            combinations=tuple(MappingProxyType(c) for c in table.get("dtype_combinations", [])),
            params=params,
            inputs=self.each(table, (*at, "inputs"), read_input),
            ints=self.each(table, (*at, "ints"), _call_int),
            outputs=self.each(table, (*at, "outputs"), read_output),
            rules=self.each(table, (*at, "rules"), read_rule),
        )

    def each(
        self,
        table: Mapping[str, Any],
        path: tuple[str, ...],
        read: Callable[[Mapping[str, Any], int], T],
    ) -> tuple[T, ...]:
        rows = table.get(path[-1], [])
        return tuple(read(row, self.lines.of(*path, at)) for at, row in enumerate(rows))


def shape_item(
    item: str | int, dims: Mapping[str, str], params: Mapping[str, model.Param]
) -> model.ShapeItem:
    """Return what one item of a shape array is."""
    if isinstance(item, str) and item.startswith("*"):
        name = item[1:]
        kind = model.ShapeKind.VARIADIC if item in dims else model.ShapeKind.PARAM_AXES
        return model.ShapeItem(kind, name)
    text = str(item)
    if text in dims:
        return model.ShapeItem(model.ShapeKind.DIM, text)
    if text in params:
        return model.ShapeItem(model.ShapeKind.PARAM, text)
    return model.ShapeItem(model.ShapeKind.EXPRESSION, text, Expression(text))


def _maybe(source: str | None) -> Expression | None:
    return None if source is None else Expression(source)


def _condition(value: bool | str) -> bool | Expression:
    return value if isinstance(value, bool) else Expression(value)


def _param(row: Mapping[str, Any], line: int) -> model.Param:
    optional = row.get("optional", False)
    default = row.get("default", None if optional else model.MISSING)
    choices = row.get("choices")
    return model.Param(
        name=row["name"],
        type=row["type"],
        doc=row.get("doc", ""),
        optional=optional,
        default=tuple(default) if isinstance(default, list) else default,
        keyword_only=row.get("keyword_only", False),
        choices=None if choices is None else tuple(choices),
        line=line,
    )


def _call_int(row: Mapping[str, Any], line: int) -> model.CallInt:
    default = row.get("default", model.MISSING)
    return model.CallInt(row["name"], row.get("doc", ""), default, line)


def _sub_op(row: Mapping[str, Any], line: int) -> model.SubOp:
    count = row.get("count", 1)
    return model.SubOp(
        op=row["op"],
        count=Expression(count) if isinstance(count, str) else count,
        when=_maybe(row.get("when")),
        line=line,
    )


def _workload(row: Mapping[str, Any], line: int) -> model.Workload:
    dims = {name: tuple(v) if isinstance(v, list) else v for name, v in row.get("dims", {}).items()}
    return model.Workload(
        label=row["label"],
        model=row["model"],
        phase=row["phase"],
        params=row.get("params", {}),
        dims=dims,
        dtypes=row.get("dtypes", {}),
        present=tuple(row.get("present", [])),
        ranks=row.get("ranks", {}),
        ints=row.get("ints", {}),
        generators=row.get("generators", {}),
        scales={name: float(scale) for name, scale in row.get("scales", {}).items()},
        line=line,
    )


def _tolerance(row: Mapping[str, Any], line: int) -> model.Tolerance:
    return model.Tolerance(
        output=row["output"],
        dtype=row["dtype"],
        rtol=float(row["rtol"]),
        atol=float(row["atol"]),
        reason=row["reason"],
    )
