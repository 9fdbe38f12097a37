"""The generated checks, and the inference of the outputs from a call's tensors."""

from __future__ import annotations

import string
from collections.abc import Sequence

from tileops.core.generate.writer import Writer, spelling, tuple_display
from tileops.manifest.model import Input, Shape, ShapeKind

__all__ = ["put_infer"]


def put_infer(writer: Writer) -> None:
    """Puts ``_infer``: checks a call; returns (shape, dtype, device) of each output.

    An output that the call omits is None. The same text serves ints and SymInts.
    """
    _Inference(writer).put_all()


class _Inference:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.signature = writer.signature
        self.put = writer.put
        self.bound = _Bindings()

    def put_all(self) -> None:
        writer = self.writer
        self.put()
        with writer.block(f"def _infer({', '.join(['self', *writer.arguments()])}):"):
            start = len(writer.lines)
            for spec in self.signature.inputs:
                self._input(spec)
            self._combinations()
            self._rules()
            self._outputs()
            body = writer.lines[start:]
            del writer.lines[start:]
            writer.load_params("\n".join(body))
            for name in self.bound.late:
                self.put(f"{name} = None")
            writer.lines += body

    def _outputs(self) -> None:
        specs = []
        for output in self.signature.outputs:
            specs.append(f"_s_{output.name}")
            device = f"p_{output.device}" if output.device is not None else "_device"
            shape, dtype = self.writer.axes(output.shape), self.writer.dtype(output.dtype)
            text = f"({shape}, {dtype}, {device})"
            if output.when is not None:
                text += f" if {output.when.to_python(self.writer.rename)} else None"
            self.put(f"_s_{output.name} = {text}")
            if output.buffer is not None:
                with self.writer.block("if out is not None:"):
                    if output.when is not None:
                        with self.writer.block(f"if _s_{output.name} is None:"):
                            self.put(f"raise _no_out(_OP, {output.name!r}, {output.when.source!r})")
                    where = spelling(output.shape)
                    self.put(f"_match_out(_OP, out, {where!r}, *_s_{output.name})")
        self.put(f"return {tuple_display(specs)}")

    def _input(self, spec: Input) -> None:
        optional = spec.optional is not False
        self.put(f"# {spec.name}: {spec.dtype} {' or '.join(map(spelling, spec.shapes))}")
        if not optional:
            self._tensor(spec, optional)
            return
        if not isinstance(spec.optional, bool):
            condition = spec.optional.to_python(self.writer.rename)
            with self.writer.block(f"if {spec.name} is None and not ({condition}):"):
                self.put(f"raise _missing(_OP, {spec.name!r}, {spec.optional.source!r})")
        with self.writer.block(f"if {spec.name} is not None:"):
            self._tensor(spec, optional)

    def _tensor(self, spec: Input, optional: bool) -> None:
        name = spec.name
        with self.writer.block(f"if {name}.layout is not _strided:"):
            self.put(f"raise _bad_layout(_OP, {name!r}, {name})")
        self._dtype(spec, optional)
        if not self._bind("_device", f"{name}.device", optional):
            with self.writer.block(f"if {name}.device != _device:"):
                self.put(f"raise _bad_device(_OP, {name!r}, {name}, _device)")
        shape = f"_n_{name}"
        self.put(f"{shape} = {name}.shape")
        if len(spec.shapes) == 1:
            self._shape(name, shape, spec.shapes[0], optional)
        else:
            self._alternatives(spec, shape)

    def _dtype(self, spec: Input, optional: bool) -> None:
        dtype, actual = self.writer.dtype(spec.dtype), f"{spec.name}.dtype"
        complaint = f"raise _bad_dtype(_OP, {spec.name!r}, {actual}, {spec.dtype!r}"
        variable = spec.dtype in self.signature.dtypes
        fresh = variable and self._bind(dtype, actual, optional)
        if variable:
            with self.writer.block(f"if {dtype} not in _range_{spec.dtype}:"):
                self.put(f"{complaint}, _range_{spec.dtype})")
        if not fresh:
            with self.writer.block(f"if {actual} != {dtype}:"):
                self.put(f"{complaint}, ({dtype},))")

    def _bind(self, name: str, value: str, optional: bool) -> bool:
        """Binds ``name`` where nothing has bound it; True where nothing could have before."""
        fresh = name not in self.bound.seen
        if name in self.bound.known:
            return False
        self.bound.add(name, optional)
        if fresh:
            self.put(f"{name} = {value}")
        else:
            with self.writer.block(f"if {name} is None:"):
                self.put(f"{name} = {value}")
        return fresh

    def _alternatives(self, spec: Input, shape: str) -> None:
        needs = " or ".join(map(spelling, spec.shapes))
        for index, alternative in enumerate(spec.shapes):
            fixed, variadic = self._rank(alternative)
            condition = f"len({shape}) == {fixed}"
            if variadic is not None and f"d_{variadic}" not in self.bound.seen:
                condition = f"len({shape}) >= {fixed}"
            elif variadic is not None:
                condition += f" + len(d_{variadic})"
            with self.writer.block(f"{'if' if index == 0 else 'elif'} {condition}:"):
                self._shape(spec.name, shape, alternative, True, _others(alternative, spec.shapes))
        with self.writer.block("else:"):
            self.put(f"raise _bad_rank(_OP, {spec.name!r}, {shape}, {needs!r})")

    def _rank(self, shape: Shape) -> tuple[str, str | None]:
        """The number of axes beside one variadic, as source, and that variadic's name.

        It is the unbound variadic where there is one; the others count among the axes.
        """
        variadics = [item.text for item in shape if item.kind is ShapeKind.VARIADIC]
        free = [name for name in variadics if f"d_{name}" not in self.bound.known]
        if len(free) > 1:
            raise ValueError(
                f"{self.writer.entry.name}: {spelling(shape)} has more than one unbound variadic"
            )
        chosen = next(iter([*free, *variadics]), None)
        position = _Position()
        for item in shape:
            if item.kind is ShapeKind.VARIADIC:
                if item.text != chosen:
                    position.add(f"len(d_{item.text})")
            elif item.kind is ShapeKind.PARAM_AXES:
                position.add(f"len(p_{item.text})")
            else:
                position.add(1)
        return position.text(), chosen

    def _shape(self, name: str, shape: str, items: Shape, optional: bool, others: str = "") -> None:
        # Bind what is free by position, then compare the whole shape with what it now should be.
        where = spelling(items) + others
        fixed, variadic = self._rank(items)
        partly = self.writer.axes(items, known=self.bound.known)
        complaint = f"raise _bad_shape(_OP, {name!r}, {shape}, {where!r}, {partly})"
        if variadic is None:
            rank = f"len({shape}) != {fixed}"
        else:
            free, left = f"d_{variadic}", f"len({shape}) - ({fixed})"
            if free in self.bound.known:
                self.put(f"_r = len({free})")
            elif free in self.bound.seen:
                self.put(f"_r = {left} if {free} is None else len({free})")
            else:
                self.put(f"_r = {left}")
            rank = f"_r < 0 or len({shape}) != {fixed} + _r"
        with self.writer.block(f"if {rank}:"):
            self.put(complaint)
        position = _Position()
        for item in items:
            local = f"d_{item.text}"
            if item.kind is ShapeKind.VARIADIC and item.text == variadic:
                start = position.text()
                self._bind(local, f"{shape}[{start}:{start} + _r]", optional)
                position.add("_r")
            elif item.kind is ShapeKind.VARIADIC:
                position.add(f"len({local})")
            elif item.kind is ShapeKind.PARAM_AXES:
                position.add(f"len(p_{item.text})")
            else:
                if item.kind is ShapeKind.DIM:
                    self._bind(local, f"{shape}[{position.text()}]", optional)
                position.add(1)
        self.put(f"_match(_OP, {name!r}, {shape}, {where!r}, {self.writer.axes(items)})")

    def _combinations(self) -> None:
        if self.signature.combinations:
            found = [name for name in self.signature.dtypes if f"t_{name}" in self.bound.seen]
            words = ", ".join(f"{name!r}: t_{name}" for name in found)
            arguments = tuple_display(
                [
                    f"({spec.dtype!r}, {spec.name!r}, {spec.name})"
                    for spec in self.signature.inputs
                    if spec.dtype in found
                ]
            )
            self.put(f"_combine(_OP, {{{words}}}, _combinations, {arguments})")

    def _rules(self) -> None:
        rename = self.writer.rename
        for index, rule in enumerate(self.signature.rules):
            if rule.phase != "call":
                continue
            fields = [name for _, name, _, _ in string.Formatter().parse(rule.message) if name]
            values = ", ".join(f"{name!r}: {rename(name)}" for name in dict.fromkeys(fields))
            message = f"lambda: _say(_OP, _messages[{index}], {{{values}}})"
            self.put(f"_require({rule.require.to_python(rename)}, {message})")


def _others(alternative: Shape, shapes: Sequence[Shape]) -> str:
    """What may stand in the place of ``alternative``, one for all of the dims that it lacks."""
    words = [str(item) for item in alternative]
    found = ""
    for other in shapes:
        kept = [str(item) for item in other]
        lacks = [word for word in words if word not in kept]
        if lacks and all(word in words for word in kept):
            found += f", or {spelling(other)} for all of {', '.join(lacks)}"
    return found


class _Bindings:
    """Which names are bound where the source stands: surely, or only if an input was there."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.seen: set[str] = set()
        self.late: dict[str, None] = {}

    def add(self, name: str, optional: bool) -> None:
        self.seen.add(name)
        if optional:
            self.late[name] = None
        else:
            self.known.add(name)


class _Position:
    """A count of axes, as source: a constant and terms known at run time."""

    def __init__(self) -> None:
        self.constant = 0
        self.terms: list[str] = []

    def add(self, step: int | str) -> None:
        if isinstance(step, int):
            self.constant += step
        else:
            self.terms.append(step)

    def text(self) -> str:
        constant = [str(self.constant)] if self.constant or not self.terms else []
        return " + ".join([*self.terms, *constant])
