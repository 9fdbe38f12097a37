"""The generated calls: ``__call__``, the boundary, and what each branch's operator does."""

from __future__ import annotations

from tileops.core.generate.writer import Writer, tuple_display, tuple_or_one
from tileops.core.watch import EXPORTING, TRACED, UNTRACED, UNWATCHED
from tileops.manifest.model import Branch

__all__ = ["put_boundary", "put_branch", "put_call", "put_composite"]


def put_call(writer: Writer) -> None:
    """Puts ``__call__``: a plan at once where nothing watches and one is there, else the boundary.

    The boundary sees every call that a compiler traces, and every first one.
    """

    writer.put()
    with writer.block(f"def __call__(self, {writer.parameters()}):"):
        _put_quick(writer, None)
        words = [f"out={name}" if name == "out" else name for name in writer.tensors()]
        words += [f"{name}={name}" for name in writer.int_names]
        writer.put(f"return self._call_boundary({', '.join(words)})")


def put_boundary(writer: Writer) -> None:
    """Puts ``_call_boundary``: chooses the effect branch and calls its operator."""

    def put_operator(index: int, branch: Branch) -> None:
        call = f"_op_{index}({', '.join([*writer.arguments(branch), '_key'])})"
        writer.return_outputs(branch, call)

    writer.put()
    with writer.block(f"def _call_boundary(self, {writer.parameters()}):"):
        _put_argument_checks(writer)
        exported = "_exported(self._description, self._explicit_target)"
        writer.put(f"_key = {exported} if {EXPORTING} else self._key")
        # Such as a graph of make_fx or torch.jit.trace, which calls the operator with this key.
        with writer.block(f"if {TRACED}:"):
            writer.put("_find_for_trace(_key)")
        writer.choose_branch(put_operator)
        if len(writer.entry.branches) > 1:
            # The rules leave such a call no branch, and the one that refuses it has the words.
            with writer.block("else:"):
                writer.put(f"self._infer({', '.join(writer.arguments())})")
                writer.put("raise _no_branch(self)")


def put_composite(writer: Writer) -> None:
    """Puts the calls of a composite: the checks, then ``forward``, all of it open to a compiler."""
    named = [name for name in ("out",) if writer.has_out] + writer.int_names
    words = [spec.name for spec in writer.signature.inputs]
    words += [f"{name}={name}" for name in named]
    writer.put()
    with writer.block(f"def __call__(self, {writer.parameters()}):"):
        _put_argument_checks(writer)
        writer.put(f"self._infer({', '.join(writer.arguments())})")
        writer.put(f"return _call_composite(self, {', '.join(words)})")
    writer.put()
    with writer.block(f"def _call_boundary(self, {writer.parameters()}):"):
        writer.put(f"return self({', '.join(words)})")


def _put_argument_checks(writer: Writer) -> None:
    """Puts what is required of the arguments before anything of them is read."""
    for name in writer.tensors():
        optional = writer.optional(name)
        guard = f"{name} is not None and " if optional else ""
        with writer.block(f"if {guard}not isinstance({name}, _Tensor):"):
            writer.put(f"raise _not_a_tensor(_OP, {name!r}, {name}, {optional})")
        # Here, because no operator of ours is ever reached with one.
        with writer.block(f"if {guard}{name}.is_nested:"):
            writer.put(f"raise _bad_layout(_OP, {name!r}, {name})")
    # Here, because the dispatcher cuts a NumPy float or a tensor down to an int in silence.
    for name in writer.int_names:
        fits = f"(_compiling() or -(2**63) <= {name} < 2**63)"
        with writer.block(f"if not (type({name}) is int and {fits}):"):
            writer.put(f"_check_int(_OP, {name!r}, {name})")


def put_branch(writer: Writer, index: int, branch: Branch) -> None:
    """Puts what the operator of ``branch`` is to a compiler and to a call with real tensors."""
    _put_fake(writer, index, branch)
    _put_run(writer, index, branch)
    _put_operator(writer, index, branch)


def _put_fake(writer: Writer, index: int, branch: Branch) -> None:
    writer.put()
    with writer.block(f"def _fake_{index}({', '.join(['self', *writer.arguments(branch)])}):"):
        writer.put(f"_specs = {_infer(writer, branch)}")
        _put_overlap_check(writer, branch)
        results = []
        for position, output in enumerate(writer.signature.outputs):
            if output.name in branch.returns:
                spec = f"_specs[{position}]"
                results.append(f"_empty({spec}[0], dtype={spec}[1], device={spec}[2])")
        writer.put(f"return {tuple_or_one(results)}")


def _put_run(writer: Writer, index: int, branch: Branch) -> None:
    arguments = writer.arguments(branch)
    writer.put()
    with writer.block(f"def _run_{index}({', '.join(['self', *arguments])}):"):
        writer.put("_settled = bool(")
        for number, name in enumerate(writer.tensors(branch)):
            condition = _or_none(writer, branch, name, _settled(name))
            writer.put(f"    {'and ' if number else ''}{condition}")
        writer.put(")")
        writer.put(f"_plan_key = {_plan_key(writer, index, branch, '_settled')}")
        writer.put("_plan = self._plans.get(_plan_key)")
        # A layout is no part of the key: what is not strided goes to the checks, which refuse it.
        strided = [
            _or_none(writer, branch, name, f"{name}.layout is _strided")
            for name in writer.tensors(branch)
        ]
        with writer.block(f"if not (_settled or ({' and '.join(strided)})):"):
            writer.put("_plan = None")
        with writer.block("if _plan is None:"):
            writer.put(f"_specs = {_infer(writer, branch)}")
        # Where two tensors lie is no part of a plan, nor in which mode they were made.
        _put_overlap_check(writer, branch)
        if written := branch.writes:
            tensors = tuple_display(list(written))
            writer.put(f"_refuse_inference(_OP, {tuple(written)!r}, {tensors})")
        with writer.block("if _plan is None:"):
            given = tuple_display(arguments)
            writer.put(f"return _serve(self, {index}, _specs, {given}, _plan_key)")
        writer.put(f"return _plan({', '.join(['self', *arguments])})")


def _put_operator(writer: Writer, index: int, branch: Branch) -> None:
    arguments = ", ".join(writer.arguments(branch))
    writer.put()
    with writer.block(f"def _operator_{index}({arguments}, key):"):
        _put_quick(writer, index)
        writer.put(f"return _dispatch_{index}({arguments}, key)")
    for role, find in (("run", "_find"), ("fake", "_find_for_trace")):
        writer.put()
        with writer.block(f"def _operator_{role}_{index}({arguments}, key):"):
            writer.put(f"return {find}(key)._{role}_{index}({arguments})")


def _put_quick(writer: Writer, only: int | None) -> None:
    """Puts the way round the dispatcher, for a call (``only`` is None) or for one operator.

    It is taken where nothing watches (see ``tileops.core.watch``), every tensor is plain memory,
    contiguous and aligned, none asks for a gradient, and a plan is known.
    """
    branches = dict(enumerate(writer.entry.branches))
    if only is not None:
        branches = {only: branches[only]}
    branch = None if only is None else branches[only]
    unwatched = [*([UNTRACED] if only is None else []), *UNWATCHED]
    writer.put("if (")
    for number, condition in enumerate(unwatched):
        writer.put(f"    {'and ' if number else ''}{condition}")
    with writer.block("):"):
        writer.put("_plan = None")
        with writer.block("try:"):
            if only is not None:
                # Spelt out, and not `_find`: a compiled call pays for each further frame.
                writer.put("_reference = _live.get(key)")
                writer.put("self = None if _reference is None else _reference()")
            writer.put("if (")
            for number, condition in enumerate(_plain(writer, branch, only is not None)):
                writer.put(f"    {'and ' if number else ''}{condition}")
            with writer.block("):"):
                if branch is not None:
                    _put_plan(writer, only or 0, branch)
                else:
                    writer.choose_branch(lambda n, one: _put_plan(writer, n, one))
        with writer.block("except RuntimeError:"):
            # Such as a sparse tensor, which has no address, or a nested one, which has no shape.
            writer.put("pass")
        with writer.block("if _plan is not None:"):
            for number, one in branches.items():
                call = f"_plan({', '.join(['self', *writer.arguments(one)])})"
                if only is not None:
                    writer.put(f"return {call}")
                elif len(branches) == 1:
                    writer.return_outputs(one, call)
                else:
                    with writer.block(f"if _branch == {number}:"):
                        writer.return_outputs(one, call)


def _plain(writer: Writer, branch: Branch | None, found: bool) -> list[str]:
    """The conditions on the instance and the arguments under which a plan may launch upon them."""
    conditions = ["self is not None"] if found else []
    # 2.0 and True would find the plan of 2 and of 1.
    conditions += [f"type({name}) is int" for name in writer.int_names]
    needs_grad = []
    for name in writer.tensors(branch):
        plain = (
            f"type({name}) in _plain_types and {name}.is_contiguous() "
            f"and (_at_{name} := {name}.data_ptr()) and not _at_{name} & 15 "
            f"and not {name}.is_neg()"
        )
        conditions.append(_or_none(writer, branch, name, plain))
        asks = f"{name}.requires_grad"
        if writer.optional(name, branch):
            asks = f"({name} is not None and {asks})"
        needs_grad.append(asks)
    return [*conditions, f"not (_grad_enabled() and ({' or '.join(needs_grad)}))"]


def _put_plan(writer: Writer, index: int, branch: Branch) -> None:
    """Puts the look-up of the plan of ``branch``.

    It is for tensors that do not overlap, and that the current mode lets it write.
    """
    writer.put(f"_plan = self._plans.get({_plan_key(writer, index, branch, 'True')})")
    if len(writer.entry.branches) > 1:
        writer.put(f"_branch = {index}")
    conditions = []
    written = branch.writes
    for name in written:
        for other in writer.tensors(branch):
            if other == name or (other in written and other < name):
                continue
            apart = (
                f"_at_{name} + {name}.nbytes <= _at_{other} "
                f"or _at_{other} + {other}.nbytes <= _at_{name}"
            )
            absent = f"{other} is None or " if writer.optional(other, branch) else ""
            conditions.append(f"({absent}{apart})")
    if written:
        made_there = " or ".join(f"{name}.is_inference()" for name in written)
        conditions.append(f"(_inference() or not ({made_there}))")
    if conditions:
        with writer.block(f"if not ({' and '.join(conditions)}):"):
            writer.put("_plan = None")


def _settled(name: str) -> str:
    return (
        f"{name}.layout is _strided and {name}.is_contiguous() "
        f"and (_at_{name} := {name}.data_ptr()) and not _at_{name} & 15"
    )


def _or_none(writer: Writer, branch: Branch | None, name: str, condition: str) -> str:
    return f"({name} is None or ({condition}))" if writer.optional(name, branch) else condition


def _plan_key(writer: Writer, index: int, branch: Branch, settled: str) -> str:
    words = [str(index), settled]
    for name in writer.tensors(branch):
        metadata = f"{name}.shape, {name}.dtype, {name}.device"
        optional = writer.optional(name, branch)
        words.append(f"None if {name} is None else ({metadata})" if optional else metadata)
    return tuple_display([*words, *writer.int_names])


def _infer(writer: Writer, branch: Branch) -> str:
    names = [name if name != "out" or branch.out else "None" for name in writer.arguments()]
    return f"self._infer({', '.join(names)})"


def _put_overlap_check(writer: Writer, branch: Branch) -> None:
    if written := branch.writes:
        pairs = tuple_display([f"({name!r}, {name})" for name in writer.tensors(branch)])
        writer.put(f"_refuse_overlap(_OP, {tuple(written)!r}, {pairs})")
