"""Writes the Python source of an op's compile boundary from its manifest entry.

One source a class. It holds, as functions that become methods of the class:

``_call_boundary``
    takes ``forward``'s parameters, chooses the effect branch, calls the branch's operator, and
    returns the signature's outputs in order;
``_infer``
    the generated checks; returns ``(shape, dtype, device)`` of each output, None where omitted;
``_fake_<k>``, ``_run_<k>``
    what branch ``k`` gives a compiler, and what it does with real tensors.

Names of the entry keep their spelling behind a prefix (``d_`` dims, ``t_`` dtype variables, ``p_``
params); what the source takes from this package begins with an underscore. The same text serves
ints and SymInts.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

from tileops.core.watch import UNWATCHED
from tileops.manifest import Entry
from tileops.manifest.model import Branch, Input, Shape, ShapeItem, ShapeKind

__all__ = ["BOUNDARY_ABI", "generate", "operator_signature"]

BOUNDARY_ABI = 1
"""Raised with any change to generated schemas, fakes or gradients: compiled artefacts rely on
them, and the compilers' caches see nothing of them but a digest that holds this number."""


def operator_signature(entry: Entry, branch: Branch) -> str:
    """The schema of ``branch``'s operator behind its name."""
    arguments = []
    alias = iter("abcdefghijklmnopqrstuvwxyz")
    for spec in entry.signature.inputs:
        if spec.name in branch.written:
            arguments.append(f"Tensor({next(alias)}!) {spec.name}")
        elif spec.optional is False:
            arguments.append(f"Tensor {spec.name}")
        else:
            arguments.append(f"Tensor? {spec.name}")
    if branch.out:
        arguments.append(f"Tensor({next(alias)}!) out")
    arguments += [f"SymInt {number.name}" for number in entry.signature.ints]
    arguments.append("str key")
    returns = ["Tensor"] * len(branch.returns)
    result = returns[0] if len(returns) == 1 else f"({', '.join(returns)})"
    return f"({', '.join(arguments)}) -> {result}"


def generate(entry: Entry) -> str:
    """The source of ``entry``'s boundary; empty of methods where the entry has none."""
    writer = _Writer(entry)
    return writer.source()


class _Writer:
    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.signature = entry.signature
        self.lines: list[str] = []
        self.indent = 0
        self.dim_names = {name.lstrip("*") for name in self.signature.dims}
        self.param_names = {param.name for param in self.signature.params}
        self.has_out = any(output.buffer for output in self.signature.outputs)

    # -- text ------------------------------------------------------------------------------------

    def put(self, text: str = "") -> None:
        self.lines.append("    " * self.indent + text if text else "")

    def rename(self, name: str) -> str:
        """The generated source's spelling of a name that an expression of the entry reads."""
        if name in self.signature.dtypes:
            return f"t_{name}"
        if name in self.param_names:
            return f"p_{name}"
        if name in self.dim_names:
            return f"d_{name}"
        return name

    def source(self) -> str:
        self.put(
            f"# {self.entry.name}: written from its manifest entry, boundary ABI {BOUNDARY_ABI}"
        )
        self._call()
        self._call_boundary()
        self._infer()
        for index, branch in enumerate(self.entry.branches):
            self._fake(index, branch)
            self._run(index, branch)
            self._trampolines(index, branch)
        return "\n".join(self.lines) + "\n"

    # -- argument lists --------------------------------------------------------------------------

    def tensors(self, branch: Branch | None = None) -> list[str]:
        """The operator's arguments but the key; without a branch, with ``out`` where one can be."""
        names = [spec.name for spec in self.signature.inputs]
        if branch.out if branch is not None else self.has_out:
            names.append("out")
        return names + [number.name for number in self.signature.ints]

    def parameters(self) -> str:
        """``forward``'s parameter list: inputs, call-time ints, keyword-only ``out``."""
        words = []
        for spec in self.signature.inputs:
            words.append(spec.name if spec.optional is False else f"{spec.name}=None")
        for number in self.signature.ints:
            words.append(number.name)
        if self.has_out:
            words += ["*", "out=None"]
        return ", ".join(words)

    # -- the call and the boundary ---------------------------------------------------------------

    def _call(self) -> None:
        """``__call__``: the body at once where nothing watches, else the boundary."""
        self.put()
        self.put(f"def __call__(self, {self.parameters()}):")
        self.indent += 1
        self.put("if (")
        plain, grads = [], []
        for spec in self.signature.inputs:
            name, optional = spec.name, spec.optional is not False
            plain.append(_plain(name, optional))
            grads.append(
                f"({name} is not None and {name}.requires_grad)"
                if optional
                else f"{name}.requires_grad"
            )
        if self.has_out:
            plain.append(_plain("out", True))
            grads.append("(out is not None and out.requires_grad)")
        grad = f"not (_grad_enabled() and ({' or '.join(grads)}))"
        conditions = [*UNWATCHED, *plain, grad]
        for number, condition in enumerate(conditions):
            self.put(f"    {'and ' if number else ''}{condition}")
        self.put("):")
        self.indent += 1
        self._choose_branch(
            lambda index, branch: self._call_branch(
                branch, f"self._run_{index}({', '.join(self.tensors(branch))})"
            )
        )
        self.indent -= 1
        words = [name if name != "out" else "out=out" for name in self._forward_names()]
        self.put(f"return self._call_boundary({', '.join(words)})")
        self.indent -= 1

    def _forward_names(self) -> list[str]:
        names = [spec.name for spec in self.signature.inputs]
        names += [number.name for number in self.signature.ints]
        return names + (["out"] if self.has_out else [])

    def _call_boundary(self) -> None:
        self.put()
        self.put(f"def _call_boundary(self, {self.parameters()}):")
        self.indent += 1
        for spec in self.signature.inputs:
            self._tensor_check(spec.name, optional=spec.optional is not False)
        if self.has_out:
            self._tensor_check("out", optional=True)
        self.put("_key = self._description if _is_exporting() else self._key")
        self._choose_branch(
            lambda index, branch: self._call_branch(
                branch, f"_op_{index}({', '.join([*self.tensors(branch), '_key'])})"
            )
        )
        self.indent -= 1

    def _choose_branch(self, put_call: Callable[[int, Branch], None]) -> None:
        branches = self.entry.branches
        if len(branches) == 1:
            put_call(0, branches[0])
            return
        self._load_params(self._condition_params())
        for index, branch in enumerate(branches):
            self.put(f"{'if' if index == 0 else 'elif'} {self._branch_condition(branch)}:")
            self.indent += 1
            put_call(index, branch)
            self.indent -= 1
        self.put("else:")
        self.put("    raise _no_branch(self)")

    def _tensor_check(self, name: str, *, optional: bool) -> None:
        guard = f"{name} is not None and " if optional else ""
        self.put(f"if {guard}not isinstance({name}, _Tensor):")
        self.put(f"    raise _not_a_tensor(_OP, {name!r}, {name}, {optional})")

    def _writes(self, spec: Input) -> str:
        """The condition under which a call writes ``spec``."""
        present = [] if spec.optional is False else [f"{spec.name} is not None"]
        if spec.mutated is False:
            return "False"
        if not isinstance(spec.mutated, bool):
            present.insert(0, f"({spec.mutated.to_python(self.rename)})")
        return " and ".join(present) or "True"

    def _branch_condition(self, branch: Branch) -> str:
        terms = []
        for spec in self.signature.inputs:
            condition = self._writes(spec)
            if condition not in ("True", "False"):
                terms.append(_either(condition, spec.name in branch.written))
        if self.has_out:
            terms.append(_either("out is not None", branch.out))
        for output in self.signature.outputs:
            if output.when is not None:
                condition = output.when.to_python(self.rename)
                terms.append(_either(condition, output.name not in branch.omitted))
        return " and ".join(terms) or "True"

    def _call_branch(self, branch: Branch, call: str) -> None:
        """Puts the call and returns the signature's outputs, in order."""
        results = []
        for output in self.signature.outputs:
            if output.name in branch.omitted:
                continue
            if output.name in branch.returns:
                results.append(f"_o_{output.name}")
            elif output.alias is not None and output.alias in branch.written:
                results.append(output.alias)
            else:
                results.append("out")
        allocated = [f"_o_{name}" for name in branch.returns]
        if len(results) == len(allocated) and len(allocated) > 0:
            self.put(f"return {call}")
            return
        if allocated:
            self.put(f"{', '.join(allocated)} = {call}")
        else:
            self.put(call)
        self.put(f"return {_tuple_or_one(results)}")

    # -- checks and inference --------------------------------------------------------------------

    def _infer(self) -> None:
        self.put()
        self.put(f"def _infer({', '.join(['self', *self.tensors()])}):")
        self.indent += 1
        start = len(self.lines)
        state = _Bindings()
        for spec in self.signature.inputs:
            self._check_input(spec, state)
        self._check_combinations(state)
        self._check_rules()
        specs = []
        for output in self.signature.outputs:
            specs.append(f"_s_{output.name}")
            device = f"p_{output.device}" if output.device is not None else "_device"
            text = f"({self._axes(output.shape)}, {self._dtype(output.dtype)}, {device})"
            if output.when is not None:
                text += f" if {output.when.to_python(self.rename)} else None"
            self.put(f"_s_{output.name} = {text}")
            if output.buffer is not None:
                self.put("if out is not None:")
                self.put(
                    f"    _match_out(_OP, out, {_spelling(output.shape)!r}, *_s_{output.name})"
                )
        self.put(f"return ({', '.join(specs)}{',' if len(specs) == 1 else ''})")
        body = self.lines[start:]
        del self.lines[start:]
        used = [name for name in self.param_names if any(f"p_{name}" in line for line in body)]
        self._load_params([p.name for p in self.signature.params if p.name in used])
        for name in state.late:
            self.put(f"{name} = None")
        self.lines += body
        self.indent -= 1

    def _load_params(self, names: Sequence[str]) -> None:
        for name in names:
            self.put(f"p_{name} = self.{name}")

    def _condition_params(self) -> list[str]:
        conditions = [
            expression
            for expression in (
                *(spec.mutated for spec in self.signature.inputs),
                *(output.when for output in self.signature.outputs),
            )
            if expression is not None and not isinstance(expression, bool)
        ]
        read = {name for expression in conditions for name in expression.names}
        return [param.name for param in self.signature.params if param.name in read]

    def _check_input(self, spec: Input, state: _Bindings) -> None:
        optional = spec.optional is not False
        shapes = " or ".join(map(_spelling, spec.shapes))
        self.put(f"# {spec.name}: {spec.dtype} {shapes}")
        if optional:
            if not isinstance(spec.optional, bool):
                condition = spec.optional.to_python(self.rename)
                self.put(f"if {spec.name} is None and not ({condition}):")
                self.put(f"    raise _missing(_OP, {spec.name!r}, {spec.optional.source!r})")
            self.put(f"if {spec.name} is not None:")
            self.indent += 1
        self.put(f"if {spec.name}.layout is not _strided:")
        self.put(f"    raise _bad_layout(_OP, {spec.name!r}, {spec.name})")
        self._check_dtype(spec, state, optional)
        fresh = state.unbound("_device")
        self._bind(state, "_device", f"{spec.name}.device", optional)
        if not fresh:
            self.put(f"if {spec.name}.device != _device:")
            self.put(f"    raise _bad_device(_OP, {spec.name!r}, {spec.name}, _device)")
        shape = f"_n_{spec.name}"
        self.put(f"{shape} = {spec.name}.shape")
        if len(spec.shapes) == 1:
            self._check_shape(spec.name, shape, spec.shapes[0], state, optional)
        else:
            self._check_alternatives(spec, shape, state, optional)
        if optional:
            self.indent -= 1

    def _check_dtype(self, spec: Input, state: _Bindings, optional: bool) -> None:
        dtype, actual = self._dtype(spec.dtype), f"{spec.name}.dtype"
        if spec.dtype not in self.signature.dtypes:
            self.put(f"if {actual} != {dtype}:")
            self.put(
                f"    raise _bad_dtype(_OP, {spec.name!r}, {actual}, {spec.dtype!r}, ({dtype},))"
            )
            return
        allowed = f"_range_{spec.dtype}"
        fresh = state.unbound(dtype)
        self._bind(state, dtype, actual, optional)
        self.put(f"if {dtype} not in {allowed}:")
        self.put(f"    raise _bad_dtype(_OP, {spec.name!r}, {actual}, {spec.dtype!r}, {allowed})")
        if not fresh:
            self.put(f"if {actual} != {dtype}:")
            self.put(
                f"    raise _bad_dtype(_OP, {spec.name!r}, {actual}, {spec.dtype!r}, ({dtype},))"
            )

    def _bind(self, state: _Bindings, name: str, value: str, optional: bool) -> None:
        """Binds ``name`` to ``value`` where nothing has bound it before."""
        fresh = state.unbound(name)
        if not state.bind(name, optional):
            return
        if fresh:
            self.put(f"{name} = {value}")
        else:
            self.put(f"if {name} is None:")
            self.put(f"    {name} = {value}")

    def _check_alternatives(
        self, spec: Input, shape: str, state: _Bindings, optional: bool
    ) -> None:
        needs = " or ".join(map(_spelling, spec.shapes))
        for index, alternative in enumerate(spec.shapes):
            fixed, variadic = self._rank(alternative)
            rank = fixed if variadic is None else f"{fixed} + len(d_{variadic})"
            condition = f"len({shape}) == {rank}"
            if variadic is not None and state.unbound(f"d_{variadic}"):
                condition = f"len({shape}) >= {fixed}"
            self.put(f"{'if' if index == 0 else 'elif'} {condition}:")
            self.indent += 1
            self._check_shape(spec.name, shape, alternative, state, True)
            self.indent -= 1
        self.put("else:")
        self.put(f"    raise _bad_rank(_OP, {spec.name!r}, {shape}, {needs!r})")

    def _rank(self, shape: Shape) -> tuple[str, str | None]:
        """The number of axes beside the variadic one, as source, and the variadic's name."""
        fixed, terms, variadic = 0, [], None
        for item in shape:
            if item.kind is ShapeKind.VARIADIC:
                if variadic is not None:
                    terms.append(f"len(d_{item.text})")
                else:
                    variadic = item.text
            elif item.kind is ShapeKind.PARAM_AXES:
                terms.append(f"len(p_{item.text})")
            else:
                fixed += 1
        if fixed or not terms:
            terms.append(str(fixed))
        return " + ".join(terms), variadic

    def _check_shape(
        self, name: str, shape: str, items: Shape, state: _Bindings, optional: bool
    ) -> None:
        # Bind what is free by position, then compare the whole shape with what it now should be.
        spelling = _spelling(items)
        items = self._unbound_variadic_first(items, state)
        fixed, variadic = self._rank(items)
        partly = self._axes(items, known=state.known)
        complaint = f"raise _bad_shape(_OP, {name!r}, {shape}, {spelling!r}, {partly})"
        if variadic is None:
            self.put(f"if len({shape}) != {fixed}:")
            self.put(f"    {complaint}")
        else:
            free = f"d_{variadic}"
            if state.unbound(free):
                self.put(f"_r = len({shape}) - ({fixed})")
            elif free not in state.known:
                self.put(f"_r = len({shape}) - ({fixed}) if {free} is None else len({free})")
            else:
                self.put(f"_r = len({free})")
            self.put(f"if _r < 0 or len({shape}) != {fixed} + _r:")
            self.put(f"    {complaint}")
        position = _Position()
        for item in items:
            local = f"d_{item.text}"
            if item.kind is ShapeKind.VARIADIC and item.text == variadic:
                start = position.text()
                end = f"{start} + _r" if start != "0" else "_r"
                self._bind(
                    state, local, f"{shape}[{start if start != '0' else ''}:{end}]", optional
                )
                position.add("_r")
            elif item.kind is ShapeKind.VARIADIC:
                position.add(f"len({local})")
            elif item.kind is ShapeKind.PARAM_AXES:
                position.add(f"len(p_{item.text})")
            else:
                if item.kind is ShapeKind.DIM:
                    self._bind(state, local, f"{shape}[{position.text()}]", optional)
                position.add(1)
        self.put(f"_match(_OP, {name!r}, {shape}, {spelling!r}, {self._axes(items)})")

    def _unbound_variadic_first(self, items: Shape, state: _Bindings) -> Shape:
        variadics = [item for item in items if item.kind is ShapeKind.VARIADIC]
        free = [item for item in variadics if f"d_{item.text}" not in state.known]
        if len(free) > 1:
            raise ValueError(
                f"{self.entry.name}: {_spelling(items)} has more than one unbound variadic axis"
            )
        return items

    def _check_combinations(self, state: _Bindings) -> None:
        if self.signature.combinations:
            found = ", ".join(
                f"{name!r}: t_{name}" for name in self.signature.dtypes if f"t_{name}" in state.seen
            )
            self.put(f"_combine(_OP, {{{found}}}, _combinations)")

    def _check_rules(self) -> None:
        for index, rule in enumerate(self.signature.rules):
            if rule.phase != "call":
                continue
            fields = [name for _, name, _, _ in string.Formatter().parse(rule.message) if name]
            values = ", ".join(f"{name!r}: {self.rename(name)}" for name in dict.fromkeys(fields))
            self.put(
                f"_require({rule.require.to_python(self.rename)}, "
                f"lambda: _say(_OP, _messages[{index}], {{{values}}}))"
            )

    def _axes(self, items: Shape, *, known: set[str] | None = None) -> str:
        """The shape as a tuple display; names not in ``known`` stand as strings for an error."""
        words = [self._axis(item, known) for item in items]
        return f"({', '.join(words)}{',' if len(words) == 1 else ''})"

    def _axis(self, item: ShapeItem, known: set[str] | None) -> str:
        if item.kind is ShapeKind.PARAM_AXES:
            return f"*p_{item.text}"
        if item.kind is ShapeKind.PARAM:
            return f"p_{item.text}"
        if item.kind is ShapeKind.EXPRESSION:
            expression = item.expression
            if expression is None:
                raise ValueError(f"{self.entry.name}: the axis {item.text!r} has no expression")
            read = {self.rename(name) for name in expression.names}
            if known is not None and any(n.startswith("d_") and n not in known for n in read):
                return repr(str(item))
            return expression.to_python(self.rename)
        local = f"d_{item.text}"
        if known is not None and local not in known:
            return repr(str(item))
        return f"*{local}" if item.kind is ShapeKind.VARIADIC else local

    def _dtype(self, name: str) -> str:
        if name in self.signature.dtypes:
            return f"t_{name}"
        return f"p_{name}" if name in self.param_names else f"_dtype_{name}"

    # -- branches --------------------------------------------------------------------------------

    def _overlaps(self, branch: Branch) -> None:
        written = [*branch.written, *(["out"] if branch.out else [])]
        if written:
            names = [spec.name for spec in self.signature.inputs] + (["out"] if branch.out else [])
            pairs = ", ".join(f"({name!r}, {name})" for name in names)
            self.put(f"_refuse_overlap(_OP, {tuple(written)!r}, ({pairs},))")

    def _fake(self, index: int, branch: Branch) -> None:
        arguments = self.tensors(branch)
        self.put()
        self.put(f"def _fake_{index}({', '.join(['self', *arguments])}):")
        self.indent += 1
        self.put(f"_specs = {self._infer_call(branch)}")
        self._overlaps(branch)
        results = []
        for position, output in enumerate(self.signature.outputs):
            if output.name in branch.returns:
                spec = f"_specs[{position}]"
                results.append(f"_empty({spec}[0], dtype={spec}[1], device={spec}[2])")
        self.put(f"return {_tuple_or_one(results)}")
        self.indent -= 1

    def _infer_call(self, branch: Branch) -> str:
        names = [spec.name for spec in self.signature.inputs]
        if self.has_out:
            names.append("out" if branch.out else "None")
        names += [number.name for number in self.signature.ints]
        return f"self._infer({', '.join(names)})"

    def _run(self, index: int, branch: Branch) -> None:
        arguments = self.tensors(branch)
        tensors = [name for name in arguments if name not in self._int_names()]
        optional = {spec.name for spec in self.signature.inputs if spec.optional is not False}
        optional -= set(branch.written)
        self.put()
        self.put(f"def _run_{index}({', '.join(['self', *arguments])}):")
        self.indent += 1
        settled = []
        keys = [str(index), "_settled"]
        for name in tensors:
            aligned = (
                f"{name}.layout is _strided and {name}.is_contiguous() "
                f"and (_at := {name}.data_ptr()) and not _at & 15"
            )
            key = f"{name}.shape, {name}.dtype, {name}.device"
            if name in optional:
                settled.append(f"({name} is None or ({aligned}))")
                keys.append(f"None if {name} is None else ({key})")
            else:
                settled.append(aligned)
                keys.append(key)
        self.put("_settled = bool(")
        for number, condition in enumerate(settled):
            self.put(f"    {'and ' if number else ''}{condition}")
        self.put(")")
        keys += self._int_names()
        self.put(f"_plan_key = ({', '.join(keys)})")
        self.put("_plan = self._plans.get(_plan_key)")
        self.put("if _plan is None:")
        self.put(f"    _specs = {self._infer_call(branch)}")
        self.indent += 1
        self._overlaps(branch)
        call = f"_serve(self, {index}, _specs, ({', '.join(arguments)},), _plan_key)"
        self.put(f"return {call}")
        self.indent -= 1
        # Where two tensors lie is no part of a plan.
        self._overlaps(branch)
        self.put(f"return _plan({', '.join(['self', *arguments])})")
        self.indent -= 1

    def _int_names(self) -> list[str]:
        return [number.name for number in self.signature.ints]

    def _trampolines(self, index: int, branch: Branch) -> None:
        arguments = ", ".join(self.tensors(branch))
        for role, find in (("run", "_find"), ("fake", "_find_for_trace")):
            self.put()
            self.put(f"def _operator_{role}_{index}({arguments}, key):")
            self.put(f"    return {find}(key)._{role}_{index}({arguments})")


class _Bindings:
    """Which names are bound where the source stands: surely, or only if an input was there."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.seen: set[str] = set()
        self.late: dict[str, None] = {}

    def unbound(self, name: str) -> bool:
        return name not in self.seen

    def bind(self, name: str, optional: bool) -> bool:
        """Notes that ``name`` is bound here; False where it surely was before."""
        if name in self.known:
            return False
        self.seen.add(name)
        if optional:
            self.late[name] = None
        else:
            self.known.add(name)
        return True


class _Position:
    """An index into a shape, as source: a constant and terms known at run time."""

    def __init__(self) -> None:
        self.constant = 0
        self.terms: list[str] = []

    def add(self, step: int | str) -> None:
        if isinstance(step, int):
            self.constant += step
        else:
            self.terms.append(step)

    def text(self) -> str:
        terms = [*self.terms, *([str(self.constant)] if self.constant or not self.terms else [])]
        return " + ".join(terms)


def _spelling(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _either(condition: str, holds: bool) -> str:
    return f"({condition})" if holds else f"not ({condition})"


def _plain(name: str, optional: bool) -> str:
    keys = f"_keys({name}).raw_repr() in _plain_keys or _learn({name})"
    plain = f"type({name}) in _plain_types and ({keys})"
    return f"({name} is None or ({plain}))" if optional else plain


def _tuple_or_one(items: Sequence[str]) -> str:
    if not items:
        return "None"
    return items[0] if len(items) == 1 else f"({', '.join(items)})"
