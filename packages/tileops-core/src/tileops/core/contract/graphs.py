"""What a captured graph holds: its calls by name, and its text without what varies."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tileops.core.conformance import classes
from tileops.core.errors import ContractError
from tileops.core.op import Op

__all__ = ["calls_of", "require_nodes", "text_of"]

_KEY = re.compile(r"(\w+@[0-9a-f]+\(.*\))#\d+", re.DOTALL)


def calls_of(graph: torch.fx.GraphModule) -> list[str]:
    """The graph's calls by name, in order; taking a result out of a tuple is none."""
    return [
        _name(node)
        for node in graph.graph.nodes
        if node.op.startswith("call_") and node.target is not operator.getitem
    ]


def _is_operator(name: str) -> bool:
    """Whether ``name`` is an operator of an op that is defined in this process."""
    return any(name in cls.compile_op_names for cls in classes())


def _name(node: torch.fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target.name()).removesuffix(".default")
    if isinstance(target, torch._ops.OpOverloadPacket):
        return str(target._qualified_op_name)
    if isinstance(target, str):
        return f"{node.op.removeprefix('call_')} {target}"
    module = getattr(target, "__module__", None) or "torch"
    return f"{module}.{getattr(target, '__name__', type(target).__name__)}"


def text_of(graph: torch.fx.GraphModule) -> str:
    """Every node with its arguments; instances are numbered as they appear."""
    keys: dict[str, str] = {}

    def spelled(value: Any) -> str:
        if isinstance(value, str) and (match := _KEY.fullmatch(value)):
            return keys.setdefault(value, f"{match[1]}#{len(keys)}")
        if isinstance(value, (tuple, list)):
            return f"({', '.join(map(spelled, value))})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{k}: {spelled(v)}' for k, v in value.items())}}}"
        return str(value)

    lines = []
    for node in graph.graph.nodes:
        words = [node.op, node.name]
        if node.op == "placeholder":
            example = node.meta.get("example_value")
            if isinstance(example, torch.Tensor):
                words += [str(example.dtype), str(tuple(example.shape)), str(example.device)]
        else:
            target = _name(node) if node.op.startswith("call_") else str(node.target)
            words += [target, spelled(node.args), spelled(node.kwargs)]
        lines.append(" ".join(words))
    return "\n".join(lines)


def require_nodes(op: Op, nodes: Sequence[str] | None, graph: torch.fx.GraphModule) -> None:
    """Requires that the graph hold the operators of ``op``, and of no other op.

    Where the op has a boundary it holds one of its own and nothing else; what stands between the
    operators of a composite may be plain PyTorch. ``nodes`` is what the case says, else the
    entry's composition does.

    Raises:
        ContractError: it does not.
    """
    entry = type(op).entry
    calls = calls_of(graph)
    found = Counter(name for name in calls if _is_operator(name))
    held = ", ".join(calls) or "no call"
    if entry.has_boundary:
        own = type(op).compile_op_names if nodes is None else tuple(nodes)
        if len(calls) != 1 or calls[0] not in own:
            raise ContractError(
                f"the graph must hold one call of {' or '.join(own)} and nothing else; it holds "
                f"{held}"
            )
        return
    if nodes is not None:
        wanted = [_Part(name, (name,), count) for name, count in Counter(nodes).items()]
    else:
        wanted = list(_composition(op))
    for part in wanted:
        there = sum(found[one] for one in part.operators)
        if there != part.count:
            raise ContractError(
                f"the graph must call {part.name} {_times(part.count)}, and does {_times(there)}; "
                f"it holds {held}"
            )
    surplus = set(found) - {one for part in wanted for one in part.operators}
    if surplus:
        raise ContractError(
            f"the graph calls {', '.join(sorted(surplus))}, which the "
            f"{'case' if nodes is not None else 'composition in the entry'} does not name"
        )


@dataclasses.dataclass(frozen=True)
class _Part:
    """Something that the graph calls so often, by one of some operators."""

    name: str
    operators: tuple[str, ...]
    count: int


def _composition(op: Op) -> Iterator[_Part]:
    known = {cls.entry.name: cls for cls in classes()}
    for part in type(op).entry.composition:
        if part.when is not None and not part.when.evaluate(op._params):
            continue
        count = part.count if isinstance(part.count, int) else part.count.evaluate(op._params)
        operators = known[part.op].compile_op_names if part.op in known else ()
        if not operators:
            raise ContractError(
                f"the entry's composition has {part.op}, which has no operator here; give the case "
                f"nodes=[...], the operators that its graph holds"
            )
        yield _Part(part.op, operators, count)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
