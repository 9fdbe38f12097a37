"""The check ``reduce-overhead``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tileops.core.contract.check import NotApplicable, check
from tileops.core.contract.judge import require_equal
from tileops.core.contract.replay import new_values, refilled
from tileops.core.contract.subject import Ran, Subject, cold
from tileops.core.contract.traced import needs_cuda, needs_traced
from tileops.core.errors import ContractError, ValuesReadError

__all__ = ["reduce_overhead"]

CALLS = 5
"""The first compiles, the second is recorded, and later ones replay."""


@check("reduce-overhead")
def reduce_overhead(subject: Subject) -> str:
    """Compiled with ``mode="reduce-overhead"``, later calls really replay a CUDA graph.

    Written inputs are at static addresses, as caches and residual buffers are: inductor leaves
    CUDA graphs out where it would have to copy them back.

    Raises:
        NotApplicable: the op checks its tensors' values, and refused to be captured.
    """
    needs_cuda(subject)
    needs_traced(subject)
    arguments = subject.inputs()
    for name in subject.effects.written:
        torch._dynamo.mark_static_address(arguments[name])
    with cold(subject.device), torch.cuda.device(subject.device):
        function = torch.compile(subject.make(), mode="reduce-overhead", fullgraph=True)
        replays = []
        for draw in range(CALLS):
            values = new_values(subject, draw)
            refilled(arguments, values)
            torch.compiler.cudagraph_mark_step_begin()
            with _counted() as count:
                try:
                    ran = _cloned(subject.call(function, arguments))
                except ValuesReadError as error:
                    raise NotApplicable(str(error)) from error
            replays.append(count[0])
            eager = subject.call(subject.make(), values)
            try:
                require_equal(subject, ran, eager, "the eager call's")
            except ContractError as error:
                raise ContractError(f"call {draw + 1}: {error}") from error
    if not all(replays[-2:]):
        raise ContractError(
            f"the last 2 of {CALLS} calls must replay a CUDA graph; the calls replayed "
            f"{', '.join(map(str, replays))}; TORCH_LOGS=cudagraphs says why"
        )
    return f"{CALLS} calls replayed {', '.join(map(str, replays))}"


def _cloned(ran: Ran) -> Ran:
    """A later replay overwrites what a graph's call returned."""
    results = {name: value.clone() for name, value in ran.results.items()}
    return Ran(results, {n: _copy(v) for n, v in ran.given.items()}, ran.before)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Counts the replays inside."""
    count, plain = [0], torch.cuda.CUDAGraph.replay

    graphs: Any = torch.cuda.CUDAGraph

    def replay(graph: Any) -> None:
        count[0] += 1
        plain(graph)

    graphs.replay = replay
    try:
        yield count
    finally:
        graphs.replay = plain
