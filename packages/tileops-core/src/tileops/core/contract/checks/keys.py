"""The check ``keys``."""

from __future__ import annotations

from tileops.core.contract.check import check
from tileops.core.contract.subject import Subject
from tileops.core.contract.traced import needs_boundary
from tileops.core.errors import ContractError

__all__ = ["keys"]


@check("keys", of_op=True)
def keys(subject: Subject) -> str:
    """A key is a string constant of the graph, and no instance has another's, nor one that was.

    What compiled code relies on is baked in under its key.
    """
    needs_boundary(subject)
    first, second = subject.make(), subject.make()
    seen = {first._key, second._key}
    del second
    third = subject.make()
    if len(seen) < 2 or third._key in seen:
        raise ContractError(f"two instances have the key {first._key!r}")
    for instance in (first, third):
        if type(instance._key) is not str:
            raise ContractError(f"the key {instance._key!r} is a {type(instance._key).__name__}")
    compiled = subject.compiled("aot_eager")
    for graph in compiled.recorder.graphs:
        held = [
            node.args[-1]
            for node in graph.graph.nodes
            if node.op == "call_function" and node.args and isinstance(node.args[-1], str)
        ]
        if compiled.op._key not in held:
            raise ContractError(
                f"the graph does not hold the key {compiled.op._key!r} as a constant; it holds "
                f"{', '.join(map(repr, held)) or 'none'}"
            )
    return ""
