"""Units that are passed on from block to block: their order, their numbers, what they build to."""

from __future__ import annotations

import ctypes
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.norm import GroupNormFwdOp
from tileops.norm.channels import kernels, tickets
from tileops.norm.channels.choices import choose_layout
from tileops.norm.channels.layouts import (
    RelayLayout,
    SplitLayout,
)
from tileops.norm.channels.numbers import launch_numbers
from tileops.norm.channels.pieces import PASS_CONFIGS
from tileops.norm.channels.programs.relay import PARAMETERS, relay
from tileops.norm.channels.shapes import Shape
from tileops.norm.channels.traits import Traits

LAYOUT = RelayLayout(256, 8, 4, 8)


@pytest.mark.parametrize(
    ("shape", "dtype", "arch", "aligned"),
    [
        # Below 64 MiB, where L2 holds much of a tensor anyway.
        (Shape("group", 1, 320, 104_000, 32), "float16", "sm_90a", True),
        # Units above 8 MiB.
        (Shape("instance", 1, 20, 2**22 + 8), "float16", "sm_90a", True),
        (Shape("instance", 1, 20, 2**21 + 4), "float32", "sm_90a", True),
        # Accesses of less than 16 bytes, or across channels.
        (Shape("instance", 1, 20, 2**21 + 4), "float16", "sm_90a", True),
        (Shape("instance", 1, 20, 2**21), "float16", "sm_90a", False),
        (Shape("group", 1, 192, 401 * 602, 24), "float16", "sm_90a", True),
        # Places that need 64 bits.
        (Shape("instance", 8, 128, 2**21), "float16", "sm_90a", True),
        # Cards with an L2 below an H200's, or of which that is not known.
        (Shape("instance", 2, 32, 2**21), "float16", "sm_80", True),
        (Shape("instance", 2, 32, 2**21), "float16", "sm_89", True),
    ],
)
def test_split_serves_what_relay_was_not_measured_for(
    shape: Shape, dtype: str, arch: str, aligned: bool
) -> None:
    layout = choose_layout(shape, dtype, aligned, True, arch, 132)
    assert isinstance(layout, SplitLayout)


def test_relay_serves_up_to_its_limits() -> None:
    for shape, dtype, vector in [
        (Shape("instance", 1, 8, 2**22), "float16", 8),
        (Shape("instance", 1, 8, 2**21), "float32", 4),
        (Shape("batch", 100, 50, 2**14), "bfloat16", 8),
    ]:
        layout = choose_layout(shape, dtype, True, True, "sm_90a", 132)
        assert layout == RelayLayout(256, vector, 4, 8)


def test_what_it_is_launched_with() -> None:
    """Parts of 2048 accesses; a mean and squares for each, a slot and a count for each unit."""
    shape = Shape("instance", 2, 32, 128**3)
    numbers, workspace = launch_numbers(shape, LAYOUT, False, 132)
    assert (numbers["part"], numbers["parts"], numbers["lead"]) == (2048, 128, 128 + 528)
    assert workspace == 64 * 128 * 8 + 64 * 8 + 65 * 4
    _, averaged = launch_numbers(shape, LAYOUT, True, 132)
    assert averaged == workspace + 64 * 8
    # Fewer parts than that are all ahead.
    numbers, _ = launch_numbers(Shape("batch", 9, 3, 4096), LAYOUT, False, 132)
    assert (numbers["parts"], numbers["lead"]) == (3, 9)


@pytest.fixture(scope="module")
def turn(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The function by which a block knows what its ticket stands for, of the program's own text."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("compiling needs a C compiler")
    folder = tmp_path_factory.mktemp("turn")
    source = folder / "turn.c"
    source.write_text(
        "#define __device__\n#define __forceinline__ inline\n"
        f"{tickets.TURN}\n"
        "unsigned turn(unsigned a, unsigned b, unsigned c) { return tickets_turn(a, b, c); }\n"
    )
    command = [compiler, "-shared", "-fPIC", "-o", folder / "turn.so", source]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "turn.so")).turn


@pytest.mark.parametrize(
    ("units", "parts", "ahead"),
    [(1, 1, 0), (1, 7, 0), (1, 7, 3), (5, 1, 0), (5, 1, 2), (7, 3, 0), (7, 3, 4), (7, 3, 99)],
)
def test_no_block_waits_for_a_later_one(turn: Any, units: int, parts: int, ahead: int) -> None:
    """Each part has both visits, and a unit's first ones have smaller tickets than its second."""
    total = units * parts
    lead = min(parts + ahead, total)
    visits = [turn(ticket, total, lead) for ticket in range(2 * total)]
    assert sorted(visits) == list(range(2 * total))
    ticket_of = {visit: ticket for ticket, visit in enumerate(visits)}
    for part in range(total):
        unit = part // parts
        firsts = [ticket_of[2 * p] for p in range(unit * parts, (unit + 1) * parts)]
        assert max(firsts) < ticket_of[2 * part + 1]
        # At most the lead's parts are read, and as many written, between a part's visits.
        assert ticket_of[2 * part + 1] - ticket_of[2 * part] <= 2 * lead
    assert [visit // 2 for visit in visits if visit % 2] == list(range(total))


BUILDS = {
    "group": (Traits("group", "float16", "float16", True, True), LAYOUT),
    "instance": (
        Traits("instance", "float32", "float32", True, True, "float32"),
        RelayLayout(256, 4, 4, 8),
    ),
    "batch": (Traits("batch", "bfloat16", "float32", True, True, "float32", True, True), LAYOUT),
}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")
@pytest.mark.parametrize("name", BUILDS)
def test_it_builds_without_a_card_and_spills_nothing(name: str, tmp_path: pathlib.Path) -> None:
    """And takes as many parameters as it is launched with; its counters are cleared first."""
    traits, layout = BUILDS[name]
    made: list[Any] = []

    def make() -> Any:
        made.append(relay(traits, layout))
        return made[0]

    program = tilelang_backend.build(make, arch="sm_90a", pass_configs=PASS_CONFIGS)
    assert program.symbol == "relay"
    assert len(made[0].params) == len(PARAMETERS)
    bodies = re.split(r'^extern "C" __global__ void[^\n]*\) \{$', program.source, flags=re.M)
    assert len(bodies) == (4 if name == "instance" else 3)
    assert "(int64_t)-1" in bodies[1]
    assert "tickets::take" not in bodies[1]
    # What other blocks of the launch write may not be read by way of the cache of constants.
    assert "__restrict__" not in program.source[program.source.index('extern "C"') :]
    for call in ("take", "is_last", "publish", "await"):
        assert bodies[2].count(f"tickets::{call}(") == 1
    from tilelang.env import env

    (tmp_path / "relay.cu").write_text(program.source)
    includes = [f"-I{env.TILELANG_TEMPLATE_PATH}", f"-I{env.CUTLASS_INCLUDE_DIR}"]
    command = ["nvcc", "-w", "-arch=sm_90a", "-std=c++17", "-cubin", "-Xptxas=-v", *includes]
    command += ["-o", str(tmp_path / "relay.cubin"), str(tmp_path / "relay.cu")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", said)
    assert spills == [("0", "0")] * (len(bodies) - 1)
    # Four blocks of 256 threads share the 65536 registers of a multiprocessor.
    assert max(int(count) for count in re.findall(r"Used (\d+) registers", said)) <= 64


@pytest.mark.gpu
def test_a_nan_of_any_bits_is_no_empty_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot with all bits set has no statistics yet: a NaN with all bits set ends the wait."""
    layout = RelayLayout(256, 4, 4, 8)
    monkeypatch.setattr(kernels, "choose_layout", lambda *_: layout)
    op = GroupNormFwdOp(3)
    for _ in range(2):
        x = torch.randn(4, 6, 20_000, device="cuda")
        x[1].view(torch.int32).fill_(-1)
        x.view(torch.int32)[2, 3, 17] = -1
        y = op(x)
        groups = x.double().view(4, 3, -1)
        spread = (groups.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        expected = ((groups - groups.mean(-1, keepdim=True)) / spread).view(x.shape)
        assert y.isnan().sum().item() == 6 * 20_000 + 2 * 20_000
        # As the entries' tolerances for float32.
        torch.testing.assert_close(y.double(), expected, rtol=4.1e-6, atol=6.2e-5, equal_nan=True)
    assert [use.call.layout for use in op.iter_kernels()] == [layout]


@pytest.mark.gpu
def test_many_launches_in_a_row_end() -> None:
    """Each takes its own tickets: what a launch leaves in the workspace is cleared by the next."""
    op = GroupNormFwdOp(32)
    given = [torch.randn(1, 512, 256, 256, device="cuda").half() for _ in range(3)]
    first = [op(x) for x in given]
    assert [use.call.layout for use in op.iter_kernels()] == [LAYOUT]
    # Which block merges a unit's parts changes; in which order it does so, not.
    same = [(op(given[n % 3]) == first[n % 3]).all() for n in range(300)]
    assert torch.stack(same).all()
