"""The check ``cuda-graph``."""

from __future__ import annotations

import torch

from tileops.core.contract.check import NotApplicable, check
from tileops.core.contract.judge import require_equal
from tileops.core.contract.replay import new_values, refilled
from tileops.core.contract.subject import Subject
from tileops.core.contract.traced import needs_cuda
from tileops.core.errors import ContractError, ValuesReadError

__all__ = ["cuda_graph"]


@check("cuda-graph")
def cuda_graph(subject: Subject) -> str:
    """Once warm, a call can be captured in a CUDA graph, and replays on new values.

    Raises:
        NotApplicable: the op checks its tensors' values, and refused to be captured.
    """
    needs_cuda(subject)
    op, arguments = subject.make(), subject.inputs()
    with torch.cuda.device(subject.device), torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            op(**arguments)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                results = op(**arguments)
        except ValuesReadError as error:
            raise NotApplicable(str(error)) from error
        for draw in (1, 2):
            values = new_values(subject, draw)
            refilled(arguments, values)

            def replay(**_: object) -> object:
                graph.replay()
                return results

            ran = subject.call(replay, arguments)
            eager = subject.call(subject.make(), values)
            try:
                require_equal(subject, ran, eager, "the eager call's")
            except ContractError as error:
                raise ContractError(f"replay {draw}: {error}") from error
    return "2 replays"
