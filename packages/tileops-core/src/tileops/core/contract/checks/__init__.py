"""Every check of a compile case, in the order in which reports have them."""

from __future__ import annotations

from tileops.core.contract.check import Check
from tileops.core.contract.checks.called_twice import called_twice
from tileops.core.contract.checks.cold_compile import cold_compile
from tileops.core.contract.checks.cuda_graph import cuda_graph
from tileops.core.contract.checks.dynamic_automatic import dynamic_automatic
from tileops.core.contract.checks.dynamic_marked import dynamic_marked
from tileops.core.contract.checks.equals_eager import equals_eager
from tileops.core.contract.checks.equals_oracle import equals_oracle
from tileops.core.contract.checks.export import export
from tileops.core.contract.checks.fake_agrees import fake_agrees
from tileops.core.contract.checks.graph_nodes import graph_nodes
from tileops.core.contract.checks.keys import keys
from tileops.core.contract.checks.opcheck import opcheck
from tileops.core.contract.checks.reduce_overhead import reduce_overhead
from tileops.core.contract.checks.same_graph import same_graph
from tileops.core.contract.checks.second_process import second_process
from tileops.core.contract.checks.served import served
from tileops.core.contract.checks.strided import strided
from tileops.core.contract.checks.writes import writes
from tileops.core.contract.checks.zero_rows import zero_rows

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = (
    served,
    cold_compile,
    graph_nodes,
    same_graph,
    equals_eager,
    equals_oracle,
    fake_agrees,
    writes,
    keys,
    strided,
    opcheck,
    zero_rows,
    dynamic_marked,
    dynamic_automatic,
    called_twice,
    second_process,
    export,
    cuda_graph,
    reduce_overhead,
)
