"""The checks that a compile case goes through."""

from __future__ import annotations

import operator
from typing import Any

import torch

from tileops.core.contract.registry import CompileCase
from tileops.core.testing import GraphRecorder, assert_close_to_oracle, to_float64

__all__ = ["check_cold_compile"]


def check_cold_compile(
    case: CompileCase, *, device: torch.device, backend: str = "inductor", seed: int = 0
) -> GraphRecorder:
    """Compiles a new instance cold, in one graph, and compares what it computes.

    The first call of an instance that has built nothing is the compiled one. The graph must hold
    the op's operators and nothing else, and the results must equal an eager call's of another
    instance, and the float64 oracle within the entry's tolerance. Returns what was recorded.

    Raises:
        AssertionError: one of these does not hold.
    """
    arguments = case.inputs(device, torch.Generator(device).manual_seed(seed))
    recorder = GraphRecorder(backend)
    op = case.make()
    torch._dynamo.reset()
    with torch.no_grad():
        # Each call gets tensors of its own, since it may write them.
        compiled = torch.compile(op, backend=recorder, fullgraph=True)(**_clone(arguments))
        eager = case.make()(**_clone(arguments))
    names = type(op).compile_op_names
    if len(recorder.calls) != 1:
        raise AssertionError(f"{case.name}: {len(recorder.calls)} graphs, and 1 was expected")
    # An operator with several results is unpacked, which computes nothing.
    expected = {*_overloads(names), str(operator.getitem)}
    others = [name for name in recorder.calls[0] if name not in expected]
    if others or not recorder.calls[0]:
        raise AssertionError(
            f"{case.name}: the graph must hold calls of {', '.join(names)} and nothing else; it "
            f"holds {', '.join(recorder.calls[0]) or 'no call'}"
        )
    outputs = [o.name for o in type(op).entry.signature.outputs]
    oracle = case.oracle(op, **{name: to_float64(value) for name, value in arguments.items()})
    for name, ours, plain, truth in zip(
        outputs, _tuple(compiled), _tuple(eager), _tuple(oracle), strict=True
    ):
        torch.testing.assert_close(ours, plain, rtol=0, atol=0, msg=lambda m: f"{case.name}: {m}")
        assert_close_to_oracle(op, name, ours, truth)
    return recorder


def _clone(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def _overloads(names: tuple[str, ...]) -> set[str]:
    return {name for base in names for name in (base, f"{base}.default")}


def _tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)
