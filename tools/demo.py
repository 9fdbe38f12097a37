"""Compiles the specification's own example, cold, and shows what came of it.

Prints the captured graph, checks that its one call is RMSNorm's operator, and compares the result
with the float64 formula. Runs on CUDA where there is a device, else on the CPU.
"""

from __future__ import annotations

import time

import torch

from tileops.core.testing import GraphRecorder
from tileops.norm import RMSNormFwdOp

ROWS, WIDTH = 2048, 4096


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    op = RMSNormFwdOp(normalized_shape=(WIDTH,))
    recorder = GraphRecorder("inductor")

    @torch.compile(fullgraph=True, backend=recorder)
    def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = op(x, weight)
        return y

    x = torch.randn(ROWS, WIDTH, device=device, dtype=torch.float16)
    weight = torch.randn(WIDTH, device=device, dtype=torch.float16)
    print(f"RMSNormFwdOp over [{ROWS}, {WIDTH}] float16 on {device}, compiled cold, fullgraph=True")
    start = time.perf_counter()
    y = block(x, weight)
    print(f"first call: {time.perf_counter() - start:.1f} s")

    print("\nthe captured graph:")
    print(recorder.graphs[0].print_readable(print_output=False))
    (calls,) = recorder.calls
    expected = [f"{name}" for name in RMSNormFwdOp.compile_op_names]
    print(f"its calls: {', '.join(calls)}")
    if [call.removesuffix(".default") for call in calls] != expected:
        print(f"FAILED: the graph should hold one call of {expected[0]}")
        return 1

    # eps=None is the machine epsilon of float32, whatever the dtype of x.
    rows, scale = x.double(), weight.double()
    eps = torch.finfo(torch.float32).eps
    formula = rows / (rows.square().mean(-1, keepdim=True) + eps).sqrt() * scale
    error = ((y.double() - formula).abs() / formula.abs().clamp_min(1e-3)).max().item()
    # float16 rounds a result once, by at most 2**-11 of its size.
    print(f"largest relative error against the float64 formula: {error:.2e} (float16: 4.88e-04)")
    print(f"served by the target {op.serving_target!r}")
    if error > 1.1 * 2**-11:
        print("FAILED: the result is not the formula's")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
