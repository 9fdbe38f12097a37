"""What tests of ops share, in this repository and in other people's packages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tileops.core.dtypes import dtype_name

__all__ = ["GraphRecorder", "assert_close_to_oracle", "poisoned", "to_float64"]


class GraphRecorder:
    """A ``torch.compile`` backend that keeps the captured graphs and hands them to another.

    ``recorder.graphs`` are the graphs in order; ``recorder.calls`` the targets of each one's call
    nodes, by name.
    """

    def __init__(self, backend: str = "inductor") -> None:
        # Not above: importing dynamo takes as long as importing torch, and a family's contracts
        # are imported where nothing is compiled.
        from torch._dynamo.backends.registry import lookup_backend

        self.graphs: list[torch.fx.GraphModule] = []
        self._compile: Callable[..., Any] = lookup_backend(backend)

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        self.graphs.append(graph)
        return self._compile(graph, inputs)

    @property
    def calls(self) -> list[list[str]]:
        return [
            [_target(node) for node in graph.graph.nodes if node.op.startswith("call_")]
            for graph in self.graphs
        ]


def _target(node: torch.fx.Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target.name())
    return str(node.target)


def to_float64(value: Any) -> Any:
    """``value`` on the CPU, in float64 where it is a floating tensor."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return value.double() if value.is_floating_point() else value


def assert_close_to_oracle(op: Any, name: str, actual: torch.Tensor, oracle: torch.Tensor) -> None:
    """Requires that ``actual`` lie within the entry's tolerance of the float64 ``oracle``.

    Raises:
        AssertionError: it does not, or the entry gives no tolerance for its dtype.
    """
    dtype = dtype_name(actual.dtype)
    for tolerance in type(op).entry.tolerances:
        if (tolerance.output, tolerance.dtype) == (name, dtype):
            torch.testing.assert_close(
                actual.cpu().double(), oracle, rtol=tolerance.rtol, atol=tolerance.atol
            )
            return
    raise AssertionError(f"{type(op).__name__}: the entry has no tolerance for {name} in {dtype}")


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Inside, memory that is allocated is filled with NaN first: what is not written shows."""
    mode = torch.get_deterministic_debug_mode()
    fill: Any = torch.utils.deterministic
    before = fill.fill_uninitialized_memory
    # Operators that have no deterministic form are none of a check's business.
    torch.use_deterministic_algorithms(True, warn_only=True)
    fill.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        fill.fill_uninitialized_memory = before
