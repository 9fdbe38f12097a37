"""Calls every program of the installed ops once, for compute-sanitizer to watch.

    compute-sanitizer --tool memcheck python tools/sanitize.py
    compute-sanitizer --tool racecheck python tools/sanitize.py

One shape of each layout and path: aligned and not, one block and clusters, held and read again,
rows that share a block, the slow path of quantized rows. Kernels come from the store, or are built
at their first call: run it once without the tool, which is quicker. Every tensor has memory of its
own, so that an access past its end is seen. Results are not compared: the tests do that.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")

import torch

from tileops import norm, positional

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32

Call = tuple[str, Callable[[], Any]]


def tensor(*shape: int, dtype: torch.dtype = F16, offset: int = 0) -> torch.Tensor:
    """Random values that start ``offset`` elements past a multiple of 16 bytes."""
    size = math.prod(shape)
    flat = torch.randn(size + offset, device="cuda", dtype=F32).to(dtype)
    return flat[offset:].view(shape)


def rows_of(op: Any, rows: int, n: int, dtype: torch.dtype, offset: int = 0, **more: Any) -> Call:
    """A call of a row op on ``rows`` rows of ``n``."""
    names = [spec.name for spec in op.entry.signature.inputs]
    params = {} if "modulated" in more else {"normalized_shape": (n,)}
    by_row = ("x", "residual")

    def call() -> Any:
        given = {}
        for name in names:
            if name in by_row:
                shape = (1, rows, n) if "modulated" in more else (rows, n)
                given[name] = tensor(*shape, dtype=dtype, offset=offset)
            elif name in ("gate", "scale", "shift"):
                given[name] = tensor(1, n, dtype=dtype)
            elif name in ("weight", "bias"):
                given[name] = tensor(n, dtype=more.get("weight", dtype), offset=offset)
        if more.get("huge"):
            given["weight"].fill_(1e25)
            given["x"].fill_(1e15)
        if more.get("doubted"):
            given["x"] += 30
        return op(**params)(**given)

    return f"{op.__name__} {rows}x{n} {dtype} offset {offset} {more or ''}", call


def row_calls() -> Iterator[Call]:
    rms, layer = norm.RMSNormFwdOp, norm.LayerNormFwdOp
    fused, fused_layer = norm.FusedAddRMSNormFwdOp, norm.FusedAddLayerNormFwdOp
    quant, fused_quant = norm.RMSNormPerTokenQuantFwdOp, norm.FusedAddRMSNormPerTokenQuantFwdOp
    ada, zero = norm.AdaLayerNormFwdOp, norm.AdaLayerNormZeroFwdOp
    for op in (rms, layer, fused, fused_layer, quant, fused_quant):
        yield rows_of(op, 7, 128, BF16)  # several rows a block
        yield rows_of(op, 5, 4096, BF16, weight=F32)
        yield rows_of(op, 5, 4095, F16, offset=1)
        yield rows_of(op, 3, 65536, BF16)
        yield rows_of(op, 2, 262144, BF16)
    yield rows_of(rms, 9, 1, F32)
    yield rows_of(rms, 9, 513, F16)
    yield rows_of(rms, 6200, 4096, BF16)  # enough for the layout of many rows
    yield rows_of(layer, 6200, 4096, BF16)
    yield rows_of(fused, 3100, 4096, BF16)
    yield rows_of(quant, 8300, 4096, BF16)
    yield rows_of(fused_quant, 3600, 4096, BF16)
    yield rows_of(rms, 3, 131072, BF16)
    yield rows_of(rms, 193, 131072, BF16, weight=F32)
    yield rows_of(rms, 3, 200000, BF16)
    # Sums by tensor cores: read again, held, in clusters of 2 and 7, two rows a cluster, the last
    # of which has one; and rows that are looked at once more.
    for doubted in (False, True):
        yield rows_of(layer, 1231, 20480, F16, doubted=doubted)
        yield rows_of(layer, 5, 32768, BF16, doubted=doubted)
        yield rows_of(layer, 2049, 49152, BF16, doubted=doubted)
        yield rows_of(layer, 3, 65536, F16, weight=F32, doubted=doubted)
        yield rows_of(layer, 193, 131072, BF16, doubted=doubted)
        yield rows_of(layer, 129, 196608, F16, weight=F32, doubted=doubted)
        yield rows_of(layer, 3, 200000, BF16, doubted=doubted)
        for n in (16384, 32768, 49160, 200000):
            yield rows_of(fused_layer, 5, n, BF16, doubted=doubted)
    yield rows_of(layer, 769, 16384, F32)
    yield rows_of(layer, 3, 65536, F32)
    yield rows_of(fused_layer, 257, 16384, F32)
    yield rows_of(fused, 3, 200000, BF16)
    # A block each, full and not.
    yield rows_of(rms, 1537, 65536, BF16)
    yield rows_of(rms, 2460, 40968, F16)
    yield rows_of(rms, 387, 32768, F32)
    # Several rows a thread, the last of which have none.
    for n, dtype in ((1024, F16), (2048, BF16), (4096, BF16), (4544, BF16)):
        yield rows_of(layer, 4099, n, dtype)
    yield rows_of(layer, 515, 8192, F16)
    yield rows_of(layer, 8195, 261, F32)
    yield rows_of(layer, 4099, 1600, F32)
    yield rows_of(rms, 3075, 2048, BF16)
    yield rows_of(rms, 1539, 4096, BF16, weight=F32)
    yield rows_of(rms, 6147, 1600, F32)
    yield rows_of(rms, 97, 262144, F16)
    yield rows_of(layer, 3, 131072, BF16)
    yield rows_of(layer, 3, 100000, F16)
    yield rows_of(fused_layer, 3, 131072, BF16)
    yield rows_of(fused, 3, 40960, BF16)
    yield rows_of(fused, 3, 65536, F32)
    yield rows_of(rms, 9, 511, BF16)
    yield rows_of(layer, 9, 4544, BF16)
    yield rows_of(layer, 9, 1600, F32)
    yield rows_of(rms, 3, 65536, F32)
    yield rows_of(rms, 2, 100003, BF16)
    yield rows_of(rms, 2, 262143, F32, offset=1)  # what does not fit is read again
    yield rows_of(fused, 3, 131072, BF16)
    yield rows_of(quant, 3, 4096, BF16, huge=True)  # computed exactly
    yield rows_of(quant, 3, 262144, BF16, huge=True)
    for modulated in (ada, zero):
        yield rows_of(modulated, 5, 1152, F16, modulated=True)
        yield rows_of(modulated, 5, 65536, F16, modulated=True)


def channels_of(op: Any, *shape: int, dtype: torch.dtype = F16, offset: int = 0) -> Call:
    """A call of a channel norm with all the tensors that it may have."""
    names = [spec.name for spec in type(op).entry.signature.inputs]

    def call() -> Any:
        given: dict[str, Any] = {"x": tensor(*shape, dtype=dtype, offset=offset)}
        for name in names[1:]:
            if name == "num_batches_tracked":
                given[name] = torch.tensor(6, device="cuda")
            else:
                given[name] = tensor(shape[1], dtype=F32).abs()
        return op(**given)

    return f"{type(op).__name__} {list(shape)} {dtype} offset {offset}", call


def channel_calls() -> Iterator[Call]:
    group, instance, batch = norm.GroupNormFwdOp, norm.InstanceNormFwdOp, norm.BatchNormFwdOp
    yield channels_of(group(32), 8, 128, 30, 34)
    yield channels_of(group(32), 2, 320, 66, 62)
    yield channels_of(group(32), 8, 128, 32, 32)  # threads hold equal parts: a block of them
    yield channels_of(group(32), 2, 320, 64, 64)  # clusters
    yield channels_of(group(32), 2, 320, 128, 128)  # short of registers
    yield channels_of(instance(True, 0.1), 9, 40, 64)  # several units a warp
    yield channels_of(group(4), 2, 32, 7, 7)  # accesses of several channels
    yield channels_of(group(4), 2, 32, 7, 7, offset=1)
    yield channels_of(group(3), 1, 6, 173, 171, dtype=F32)
    yield channels_of(group(2), 1, 8, 512, 1024)
    yield channels_of(group(32), 1, 512, 256, 256)
    yield channels_of(instance(True, 0.1), 2, 5, 12, 12)
    yield channels_of(instance(True, 0.1), 1, 3, 700, 900)
    yield channels_of(instance(False, 0.1), 33, 64, 9)
    yield channels_of(instance(True, 0.1), 2, 320, 8, 8, 8)  # a warp
    yield channels_of(instance(True, 0.1), 3, 353, 8, 8, 8)  # two a block, the last with one
    yield channels_of(instance(True, 0.1), 2, 9, 128, 128, dtype=BF16)
    for momentum in (0.1, None):
        yield channels_of(batch(True, momentum), 9, 200, 7, 7)
        yield channels_of(batch(True, momentum), 64, 16, 56, 56)
        yield channels_of(batch(True, momentum), 300, 3, 71, 71)
        yield channels_of(batch(True, momentum), 30_001, 104)
        yield channels_of(batch(True, momentum), 8192, 256)
    yield channels_of(batch(False, 0.1), 7, 5, 12, 12)
    yield channels_of(batch(False, 0.1), 33, 24, 7, 7, offset=3)
    yield channels_of(batch(False, 0.1), 64, 2048, 7, 7)
    yield channels_of(batch(True, 0.1), 64, 64, 112, 112)
    yield channels_of(batch(True, None), 64, 64, 112, 112)
    yield channels_of(instance(True, 0.1), 3, 7, 904, 901, dtype=F32)


def rotated(op: Any, heads: int, dim: int, dtype: torch.dtype, **more: Any) -> Call:
    def call() -> Any:
        given = {"q": tensor(2, 9, heads, dim, dtype=dtype), "k": tensor(2, 9, 1, dim, dtype=dtype)}
        given |= {name: make() for name, make in more.items()}
        return op(**given)

    return f"{type(op).__name__} {heads} heads of {dim} {dtype} {[*more]}", call


def packed(heads: tuple[int, int, int], dim: int, dtype: torch.dtype) -> Call:
    op = positional.FusedQKNormRoPEFwdOp(*heads, dim)

    def call() -> Any:
        return op(
            qkv=tensor(2, 9, sum(heads) * dim, dtype=dtype),
            q_weight=tensor(dim, dtype=dtype),
            k_weight=tensor(dim, dtype=dtype),
        )

    return f"FusedQKNormRoPEFwdOp {heads} {dim} {dtype}", call


def positional_calls() -> Iterator[Call]:
    for dtype in (BF16, F32):
        for seq_len, heads in ((256, 6), (255, 5), (3, 2)):
            alibi = positional.AlibiFwdOp(seq_len, heads, dtype=dtype, device="cuda")
            yield f"AlibiFwdOp {seq_len} {heads} {dtype}", alibi
        short = ((700, 256, True), (33, 254, False), (5, 6, True), (1031, 1030, False))
        for seq_len, width, interleaved in (*short, (8193, 1024, True), (8191, 1026, False)):
            sinusoidal = positional.SinusoidalFwdOp(
                seq_len, width, interleaved=interleaved, dtype=dtype, device="cuda"
            )
            yield f"SinusoidalFwdOp {seq_len} {width} {interleaved} {dtype}", sinusoidal

    def places() -> torch.Tensor:
        return torch.arange(9, device="cuda")

    rope = positional.RoPEFwdOp
    yield rotated(rope(), 4, 128, BF16)
    yield rotated(rope(inplace=True), 4, 128, BF16, position_ids=places)
    yield rotated(rope(rotary_dim=24), 64, 96, F16)
    yield rotated(rope(rotary_dim=64, interleaved=True), 16, 256, F16)
    yield rotated(rope(), 3, 70, F32)
    yield rotated(
        positional.RoPECacheFwdOp(),
        *(8, 128, BF16),
        position_ids=places,
        cos_sin_cache=lambda: tensor(11, 128, dtype=F32),
    )
    yield rotated(
        positional.RoPEMultimodalFwdOp(mrope_section=(16, 24, 24)),
        *(8, 128, BF16),
        position_ids=lambda: torch.arange(54, device="cuda").view(3, 2, 9),
    )
    yield packed((32, 8, 8), 128, BF16)
    yield packed((3, 1, 1), 96, F16)
    yield packed((2, 1, 1), 576, F32)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="calls whose name contains this")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th call, from the K-th on")
    options = parser.parse_args()
    at, of = map(int, options.part.split("/"))
    every = [*row_calls(), *channel_calls(), *positional_calls()]
    chosen = [call for call in every if options.only in call[0]][at::of]
    failed = 0
    for name, call in chosen:
        try:
            call()
            torch.cuda.synchronize()
        except Exception as error:  # so that one fault does not hide the others
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
            if "CUDA error" in str(error):
                break
    print(f"{len(chosen)} calls, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
