"""What every part of the generated source is written with."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence

from tileops.manifest import MISSING, Entry
from tileops.manifest.model import Branch, Input, Shape, ShapeItem, ShapeKind

__all__ = ["Writer", "spelling", "tuple_display", "tuple_or_one"]


class Writer:
    """Lines of source for one entry, and how the entry's names are spelt in it."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.signature = entry.signature
        self.lines: list[str] = []
        self.indent = 0
        self.dim_names = {name.lstrip("*") for name in self.signature.dims}
        self.param_names = {param.name for param in self.signature.params}
        # Expressions compare a dtype or a device by its name.
        self.word_names = {p.name for p in self.signature.params if p.type in ("dtype", "device")}
        self.has_out = any(output.buffer for output in self.signature.outputs)
        self.int_names = [number.name for number in self.signature.ints]

    def put(self, text: str = "") -> None:
        self.lines.append("    " * self.indent + text if text else "")

    @contextlib.contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Puts ``opening`` and indents what is put inside."""
        self.put(opening)
        self.indent += 1
        yield
        self.indent -= 1

    # -- names -----------------------------------------------------------------------------------

    def rename(self, name: str) -> str:
        """The generated source's spelling of a name that an expression of the entry reads."""
        if name in self.signature.dtypes:
            return f"t_{name}"
        if name in self.word_names:
            return f"w_{name}"
        if name in self.param_names:
            return f"p_{name}"
        return f"d_{name}" if name in self.dim_names else name

    def dtype(self, name: str) -> str:
        """The spelling of a dtype: of a variable, of a param, or of a dtype's own name."""
        if name in self.signature.dtypes:
            return f"t_{name}"
        return f"p_{name}" if name in self.param_names else f"_dtype_{name}"

    def axes(self, items: Shape, *, known: set[str] | None = None) -> str:
        """The shape as a tuple display; dims not in ``known`` stand as strings for an error."""
        return tuple_display([self._axis(item, known) for item in items])

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

    # -- argument lists --------------------------------------------------------------------------

    def tensors(self, branch: Branch | None = None) -> list[str]:
        """The call's tensors, with ``out`` where ``branch`` fills it, or where one could."""
        names = [spec.name for spec in self.signature.inputs]
        if branch.out if branch is not None else self.has_out:
            names.append("out")
        return names

    def arguments(self, branch: Branch | None = None) -> list[str]:
        """The operator's arguments but the key: the tensors, then the call-time ints."""
        return [*self.tensors(branch), *self.int_names]

    def optional(self, name: str, branch: Branch | None = None) -> bool:
        """Whether the tensor may be None, in any branch or in ``branch``."""
        if branch is not None and (name in branch.written or name == "out"):
            return False
        if name == "out":
            return True
        return any(s.name == name and s.optional is not False for s in self.signature.inputs)

    def parameters(self) -> str:
        """``forward``'s parameter list: inputs, call-time ints, keyword-only ``out``."""
        words = []
        for spec in self.signature.inputs:
            words.append(spec.name if spec.optional is False else f"{spec.name}=None")
        # After an optional input a parameter without a default must be keyword-only.
        late = any(spec.optional is not False for spec in self.signature.inputs)
        keyword_only = [n.name for n in self.signature.ints if late and n.default is MISSING]
        for number in self.signature.ints:
            if number.name not in keyword_only:
                default = "" if number.default is MISSING else f"={number.default!r}"
                words.append(number.name + default)
        if keyword_only or self.has_out:
            words += ["*", *keyword_only]
        if self.has_out:
            words.append("out=None")
        return ", ".join(words)

    def load_params(self, text: str) -> None:
        """Puts the params that ``text``, a part of the source, reads."""
        read = set(re.findall(r"\b[pw]_\w+", text))
        for param in self.signature.params:
            if f"p_{param.name}" in read:
                self.put(f"p_{param.name} = self.{param.name}")
            if f"w_{param.name}" in read:
                self.put(f"w_{param.name} = _word(self.{param.name})")

    # -- branches --------------------------------------------------------------------------------

    def choose_branch(self, put_call: Callable[[int, Branch], None]) -> None:
        """Puts ``put_call`` once for each branch, under the condition that chooses it."""
        branches = self.entry.branches
        if len(branches) == 1:
            put_call(0, branches[0])
            return
        conditions = [self._condition(branch) for branch in branches]
        self.load_params("\n".join(conditions))
        for index, (branch, condition) in enumerate(zip(branches, conditions, strict=True)):
            with self.block(f"{'if' if index == 0 else 'elif'} {condition}:"):
                put_call(index, branch)

    def _condition(self, branch: Branch) -> str:
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

    def _writes(self, spec: Input) -> str:
        """The condition under which a call writes ``spec``."""
        present = [] if spec.optional is False else [f"{spec.name} is not None"]
        if spec.mutated is False:
            return "False"
        if not isinstance(spec.mutated, bool):
            present.insert(0, f"({spec.mutated.to_python(self.rename)})")
        return " and ".join(present) or "True"

    def return_outputs(self, branch: Branch, call: str) -> None:
        """Puts the call of a branch and the return of its outputs.

        The call gives what the branch allocates; written inputs and ``out`` are the caller's own
        tensors, put in their places in the order of the signature.
        """
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
        if results == allocated and results:
            self.put(f"return {call}")
            return
        self.put(f"{', '.join(allocated)} = {call}" if allocated else call)
        self.put(f"return {tuple_or_one(results)}")


def spelling(shape: Shape) -> str:
    """The shape as it stands in the entry."""
    return f"[{', '.join(map(str, shape))}]"


def tuple_display(words: Sequence[str]) -> str:
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def tuple_or_one(items: Sequence[str]) -> str:
    if not items:
        return "None"
    return items[0] if len(items) == 1 else f"({', '.join(items)})"


def _either(condition: str, holds: bool) -> str:
    return f"({condition})" if holds else f"not ({condition})"
