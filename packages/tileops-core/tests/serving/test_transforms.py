"""DTensor, vmap and inference mode: each gives what it should, or an error that names the op."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tileops.core.errors import ArgumentError

from .serving_ops import AccumulateFwdOp, AddFwdOp

# -- DTensor ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    """One process, and a store that is a table in its memory: no network."""
    if not dist.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("cls", [AddFwdOp, AccumulateFwdOp])
def test_a_dtensor_is_refused_by_name(
    ops: ModuleType, mesh: DeviceMesh, cls: Any, compiled: bool
) -> None:
    """How an op's axes may be split is not in its entry; to gather in silence would be slow, and
    to run on the shard wrong. Nothing is written."""
    from torch.distributed.tensor import Shard, distribute_tensor

    op = cls(target="building")
    call = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
    x = distribute_tensor(torch.zeros(2, 4), mesh, [Shard(0)])
    by = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    # Dynamo wraps what the operator raises, and says where it was called.
    kind = torch._dynamo.exc.Unsupported if compiled else NotImplementedError
    with torch.no_grad(), pytest.raises(kind) as error:
        call(x, by)
    name = cls.compile_op_names[0].replace("::", ".")
    text = f"Operator {name}.default does not have a sharding strategy registered."
    assert text in str(error.value) if compiled else text == str(error.value)
    assert not x.to_local().any()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_local_map_is_the_way_that_works(ops: ModuleType, mesh: DeviceMesh, compiled: bool) -> None:
    """The caller says how the tensors are split; the op sees the local shard."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import local_map

    op = AddFwdOp(target="building")
    rows = local_map(
        op,
        out_placements=[Shard(0)],
        in_placements=([Shard(0)], [Replicate()]),
        device_mesh=mesh,
    )
    if compiled:
        rows = torch.compile(rows, backend="aot_eager", fullgraph=True)
    x, by = torch.randn(4, 8), torch.randn(8)
    with torch.no_grad():
        y = rows(distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(by, mesh, [Replicate()]))
    assert torch.equal(y.full_tensor(), x + by)
    assert y.placements == (Shard(0),)


# -- vmap ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_vmap_is_right(ops: ModuleType, compiled: bool) -> None:
    """One call a sample, through PyTorch's own fallback: right, and not fast."""
    op = AddFwdOp(target="building")
    mapped = torch.func.vmap(op)
    if compiled:
        mapped = torch.compile(mapped, backend="aot_eager", fullgraph=True)
    x, by = torch.randn(3, 4, 8), torch.randn(3, 8)
    with torch.no_grad():
        assert torch.equal(mapped(x, by), x + by[:, None])


def test_vmap_over_one_of_two(ops: ModuleType) -> None:
    """What is not mapped over is given to each call as it is, on any axis."""
    mapped = torch.func.vmap(AddFwdOp(target="building"), in_dims=(1, None), out_dims=1)
    x, by = torch.randn(4, 3, 8), torch.randn(8)
    assert torch.equal(mapped(x, by), x + by)


def test_vmap_of_a_write_is_refused_by_name_and_writes_nothing(ops: ModuleType) -> None:
    op = AccumulateFwdOp(target="building")
    x = torch.zeros(3, 4, 8)
    with pytest.raises(RuntimeError) as error:
        torch.func.vmap(op)(x, torch.ones(3, 8))
    assert str(error.value) == (
        "Batching rule not implemented for tileops::serving_accumulate_fwd_writes_x; the fallback "
        "path doesn't work on out= or view ops."
    )
    assert not x.any()
    assert ops.events == []


# -- inference mode -----------------------------------------------------------------------------


@pytest.mark.parametrize("warmed", [True, False], ids=["warmed", "cold"])
@pytest.mark.parametrize("target", ["building", "reference"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_inference_mode_gives_what_no_grad_gives(
    ops: ModuleType, target: str, compiled: bool, warmed: bool
) -> None:
    """With tensors made inside, where PyTorch counts no writes, and with those made outside."""
    for cls in (AddFwdOp, AccumulateFwdOp):
        outside = torch.randn(3, 8)
        by = torch.randn(8)
        wanted = outside + by
        op = cls(target=target)
        if warmed:
            op.warm_up(outside, by)
        call = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
        with torch.inference_mode():
            for _ in range(3):
                for x in (outside.clone(), outside):
                    kept = x.clone()
                    y = call(x, by)
                    torch.testing.assert_close(y, wanted)
                    torch.testing.assert_close(x, kept if cls is AddFwdOp else wanted)
                    x.copy_(kept)


@pytest.mark.parametrize("target", ["building", "reference"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, 8),
        lambda: torch.zeros(8, 3).t(),
        lambda: torch.zeros(3, 8, dtype=torch.complex64).conj().imag,
    ],
    ids=["contiguous", "strided", "negated"],
)
def test_what_was_made_in_inference_mode_is_written_there_only(
    ops: ModuleType, target: str, make: Any
) -> None:
    """PyTorch's error named no op, and came when the tensor was written; a kernel wrote it."""
    op = AccumulateFwdOp(target=target)
    with torch.inference_mode():
        x = make()
    by = torch.ones(8)
    for _ in range(2):
        with pytest.raises(ArgumentError) as error:
            op(x, by)
        assert str(error.value) == (
            "AccumulateFwdOp: x is written and was made in inference mode, so that it may be "
            "written there only; call the op under torch.inference_mode(), or pass x.clone()"
        )
        assert not x.any()
        # Warm from here on.
        assert torch.equal(op(x.clone(), by), torch.ones(3, 8))
    with torch.inference_mode():
        assert torch.equal(op(x, by), torch.ones(3, 8))
    assert x.all()


@pytest.mark.parametrize("cls", [AddFwdOp, AccumulateFwdOp])
def test_a_warm_call_in_inference_mode_is_a_replayed_plan(ops: ModuleType, cls: Any) -> None:
    """As in no_grad mode: one launch, ``forward`` not run again. An op that gives its written
    input back was not replayed in either."""
    op = cls(target="building")
    with torch.inference_mode():
        x, by = torch.zeros(3, 8), torch.ones(8)
        op(x, by)
        op.forward = None
        ops.events.clear()
        y = op(x, by)
    assert ops.events == ["launch"]
    assert (y is x) is (cls is AccumulateFwdOp)
    assert torch.equal(y, torch.full((3, 8), 1.0 + (cls is AccumulateFwdOp)))


def test_a_forward_that_is_run_again_is_not_watched_again(ops: ModuleType) -> None:
    """What it writes was found out by the first call; a dispatch mode around each later one made
    writes in inference mode cost half as much again."""
    op = AccumulateFwdOp(target="reference")
    with torch.inference_mode():
        x, by = torch.zeros(3, 8), torch.ones(8)
        modes: list[int] = []
        forward = op.forward

        def watched(*given: torch.Tensor) -> Any:
            modes.append(torch._C._len_torch_dispatch_stack())
            return forward(*given)

        op.forward = watched
        op(x, by)
        op(x, by)
    assert modes == [1, 0]
