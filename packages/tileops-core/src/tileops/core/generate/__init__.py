"""Writes the Python source of an op's compile boundary from its manifest entry.

One source a class. It holds, as functions that become methods of the class:

``__call__``
    the call itself: at once where nothing watches it and a plan is known, else the boundary;
``_call_boundary``
    takes ``forward``'s parameters, chooses the effect branch, calls the branch's operator, and
    returns the signature's outputs in order;
``_infer``
    the generated checks; returns ``(shape, dtype, device)`` of each output, None where omitted;
``_fake_<k>``, ``_run_<k>``
    what branch ``k`` gives a compiler, and what it does with real tensors.

Names of the entry keep their spelling behind a prefix (``d_`` dims, ``t_`` dtype variables, ``p_``
params, ``w_`` the names of dtype and device params); what the source takes from this package begins
with an underscore.
"""

from __future__ import annotations

from tileops.core.generate.calls import put_boundary, put_branch, put_call, put_composite
from tileops.core.generate.infer import put_infer
from tileops.core.generate.writer import Writer
from tileops.manifest import Entry
from tileops.manifest.model import Branch

__all__ = [
    "BOUNDARY_ABI",
    "argument_names",
    "generate",
    "generate_composite",
    "generate_factory",
    "operator_signature",
]

BOUNDARY_ABI = 1
"""Raised with any change to generated schemas, fakes or gradients: compiled artefacts rely on
them, and the compilers' caches see nothing of them but a digest that holds this number.
``tests/keys/test_digest.py`` keeps a hash for each number, and fails when one is forgotten."""


def generate(entry: Entry) -> str:
    """The source of the boundary of ``entry``, which must have one."""
    writer = Writer(entry)
    writer.put(f"# {entry.name}: written from its manifest entry, boundary ABI {BOUNDARY_ABI}")
    put_call(writer)
    put_boundary(writer)
    put_infer(writer)
    for index, branch in enumerate(entry.branches):
        put_branch(writer, index, branch)
    return "\n".join(writer.lines) + "\n"


def generate_factory(entry: Entry) -> str:
    """The source of the methods of ``entry``, whose calls take no tensor."""
    writer = Writer(entry)
    writer.put(f"# {entry.name}: written from its manifest entry; it takes no tensor")
    for name in ("__call__", "_call_boundary"):
        writer.put()
        with writer.block(f"def {name}(self):"):
            writer.put("return _call_factory(self)")
    put_infer(writer)
    return "\n".join(writer.lines) + "\n"


def generate_composite(entry: Entry) -> str:
    """The source of the methods of ``entry``, which is made of other ops."""
    writer = Writer(entry)
    writer.put(f"# {entry.name}: written from its manifest entry; its sub-ops are the nodes")
    put_composite(writer)
    put_infer(writer)
    return "\n".join(writer.lines) + "\n"


def argument_names(entry: Entry, branch: Branch) -> tuple[str, ...]:
    """The arguments of the operator of ``branch``, but the key, in order."""
    return tuple(Writer(entry).arguments(branch))


def operator_signature(entry: Entry, branch: Branch) -> str:
    """The schema of the operator of ``branch``, behind its name."""
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
