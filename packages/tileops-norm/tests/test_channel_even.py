"""The even program without a card: where it is chosen, how it is launched, what it compiles to."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import pathlib
import re
import shutil
import subprocess
from importlib import import_module
from typing import Any

import pytest
import torch

from tileops.core import tilelang_backend
from tileops.norm import BatchNormFwdOp, GroupNormFwdOp, InstanceNormFwdOp
from tileops.norm.channels.choices import choose_layout
from tileops.norm.channels.layouts import MOST_FLOATS, EvenLayout, NothingLayout
from tileops.norm.channels.numbers import launch_numbers
from tileops.norm.channels.pieces import PASS_CONFIGS
from tileops.norm.channels.shapes import Shape
from tileops.norm.channels.traits import Traits

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")

#: The entries' workloads whose statistics are the input's, and the programs that they get.
WORKLOADS = {
    "sdxl-unet-1024-320": "even",
    "sdxl-unet-1024-1280": "even",
    "sdxl-vae-decode-512": "relay",
    "sdxl-vae-decode-128": "relay",
    "cyclegan-resnet-256": "even",
    "nnunet-3d-fullres-32": "relay",
    "nnunet-3d-fullres-320": "even",
    "resnet-50-training-256": "held",
    "resnet-50-training-2048": "columns",
}


def workloads() -> Any:
    for op in (GroupNormFwdOp, InstanceNormFwdOp, BatchNormFwdOp):
        mode = op.__name__.removesuffix("NormFwdOp").lower()
        for workload in op.entry.workloads:
            dims, params = workload.dims, workload.params
            if mode == "batch" and not params.get("training", False):
                continue
            groups = params.get("num_groups", 0)
            shape = Shape(mode, dims["N"], dims["C"], math.prod(dims["S"]), groups)  # type: ignore[arg-type]
            yield workload.label, shape, workload.dtypes["T"]


def test_what_program_the_entries_workloads_get() -> None:
    found = {
        label: choose_layout(shape, dtype, True, True, "sm_90a", 132).program
        for label, shape, dtype in workloads()
    }
    assert found == WORKLOADS


def test_an_even_program_is_left_where_it_does_not_fit() -> None:
    def chosen(
        shape: Shape, dtype: str = "float16", aligned: bool = True, arch: str = "sm_90a"
    ) -> Any:
        return choose_layout(shape, dtype, aligned, True, arch, 132)

    fits_it = Shape("instance", 2, 320, 512)
    layout = EvenLayout(1, 32, 4, 2, 8, filled=True, past_l1=True)
    assert chosen(fits_it) == chosen(fits_it, arch="sm_80") == layout
    assert chosen(fits_it, aligned=False).program == "held"
    # A batch's channels are no runs; accesses of 8 bytes; channels that share an access.
    assert chosen(Shape("batch", 2, 320, 512)).program == "held"
    assert chosen(Shape("instance", 2, 320, 516)).program == "held"
    assert chosen(Shape("group", 2, 320, 52, 32)).program == "held"
    # 67 accesses are no threads' equal parts, and 2011 no blocks'.
    assert chosen(Shape("instance", 2, 320, 67 * 8)).program == "held"
    assert chosen(Shape("instance", 2, 3, 2011 * 8)).program == "held"
    # Elements that 32 bits count, and more.
    assert chosen(Shape("group", 2**31 // 4096 - 1, 8, 512, 1)).program == "even"
    assert chosen(Shape("group", 2**31 // 4096, 8, 512, 1)).program == "held"
    # Units of 1,152 KiB are what eight blocks of 512 threads hold by 18 accesses, and no more.
    for samples, other in ((1, "split"), (9, "relay")):
        assert chosen(Shape("instance", samples, 8, 9 * 2**16)) == EvenLayout(8, 512, 1, 18, 8)
        assert chosen(Shape("instance", samples, 8, 9 * 2**16 + 2**15)).program == other
    # No elements.
    assert chosen(Shape("instance", 0, 320, 512)) == NothingLayout()


#: Units by their accesses, of 16 bytes in float16, and what many of them get on an H200.
MANY = {
    1: EvenLayout(1, 1, 128, 1, 8),
    2: EvenLayout(1, 1, 128, 2, 8),
    8: EvenLayout(1, 4, 32, 2, 8),
    64: EvenLayout(1, 32, 4, 2, 8),
    128: EvenLayout(1, 64, 2, 2, 8),
    256: EvenLayout(1, 128, 1, 2, 8),
    # Eight blocks of 128 threads, not four of 256.
    512: EvenLayout(1, 128, 1, 4, 8),
    # Five blocks of 192.
    576: EvenLayout(1, 192, 1, 3, 8),
    1024: EvenLayout(1, 128, 1, 8, 8, 8),
    # Four blocks of 256 threads, or of 160: the wider.
    2560: EvenLayout(1, 256, 1, 10, 8, 4),
    # 1024 threads in four blocks, not 640 in five.
    8192: EvenLayout(4, 256, 1, 8, 8, 4),
    # Two blocks of 384 threads, not one of 480.
    5760 * 8: EvenLayout(8, 384, 1, 15, 8, 2),
    2**16: EvenLayout(8, 512, 1, 16, 8),
}


@pytest.mark.parametrize("accesses", MANY)
def test_of_many_units_the_most_threads_are_under_way(accesses: int) -> None:
    """However many: one build serves them all, and one those that leave some of a block over."""
    least = max(10, 2**17 // accesses)
    for samples in (least, 2 * least, 3 * least + 1):
        shape = Shape("instance", samples, 8, accesses * 8)
        layout = choose_layout(shape, "float16", True, True, "sm_90a", 132)
        assert dataclasses.replace(layout, filled=False) == MANY[accesses]
        assert layout.filled == (layout.units > 1 and shape.units % layout.units == 0)


def test_a_constant_units_mean_is_the_constant() -> None:
    """A thread averages what warps found by a product, which 7, 13 and 15 do not survive."""

    def survives(count: int) -> bool:
        every = torch.arange(1024, 2048, dtype=torch.float32)  # each significand of float16
        return torch.equal(every * count * torch.tensor(1.0 / count, dtype=torch.float32), every)

    assert [count for count in range(1, 17) if not survives(count)] == [7, 13, 14, 15]
    reads = set()
    for accesses in range(1, 9 * 2**13):
        shape = Shape("instance", 64, 64, accesses * 8)
        layout = choose_layout(shape, "float16", True, True, "sm_90a", 132)
        if layout.program == "even":
            reads.add(layout.read)
    assert max(reads) <= 16
    assert all(survives(count) for count in reads)
    # Not 15 warps of each of two blocks.
    shape = Shape("group", 2, 960, 1024, 32)
    layout = choose_layout(shape, "float16", True, True, "sm_90a", 132)
    assert layout == EvenLayout(2, 384, 1, 5, 8, 1, True)


def test_an_even_layout_serves_one_size() -> None:
    layout = EvenLayout(2, 64, 1, 5, 8)
    shape = Shape("group", 3, 80, 640, 10)
    numbers, workspace = launch_numbers(shape, layout, False, 132)
    assert (numbers["units"], numbers["groups"], numbers["per"]) == (30, 10, 8)
    assert (numbers["inner"], workspace) == (80, 0)
    with pytest.raises(ValueError, match=r"EvenLayout\(.*\) serves no units of 5112 elements"):
        launch_numbers(Shape("group", 3, 80, 639, 10), layout, False, 132)


def test_filled_blocks_leave_no_unit_over() -> None:
    layout = EvenLayout(1, 32, 4, 2, 8, filled=True)
    numbers, _ = launch_numbers(Shape("instance", 2, 6, 512), layout, False, 132)
    assert numbers["units"] == 12
    with pytest.raises(ValueError, match=r"EvenLayout\(.*filled=True.*\) serves no 14 units"):
        launch_numbers(Shape("instance", 2, 7, 512), layout, False, 132)


@needs_nvcc
def test_filled_blocks_ask_for_no_unit() -> None:
    """Else warps end where there is none; lanes of a shared warp stay for the others."""

    def source(layout: EvenLayout) -> str:
        module = import_module("tileops.norm.channels.programs.even")
        traits = Traits("instance", "float16", "float16", True, True)
        program = tilelang_backend.build(
            lambda: module.even(traits, layout), arch="sm_90a", pass_configs=PASS_CONFIGS
        )
        return program.source.split("__launch_bounds__")[1].split("{", 1)[1]

    for lanes in (8, 32, 64):
        whole = source(EvenLayout(1, lanes, 128 // lanes, 2, 8, filled=True))
        assert "units" not in whole
        assert "return" not in whole
        some = source(EvenLayout(1, lanes, 128 // lanes, 2, 8))
        assert "units" in some
        assert ("return" in some) == (lanes >= 32)
    past = source(EvenLayout(1, 32, 4, 2, 8, past_l1=True))
    assert past.count("even::read_past_l1(") == 1
    assert "even::read_past_l1(" not in source(EvenLayout(1, 32, 4, 2, 8))


def test_an_even_launch_divides_by_numbers_of_32_bits() -> None:
    """Its magic numbers travel as signed ones: the kernel takes their bits."""
    layout = EvenLayout(1, 32, 1, 1, 8)
    for channels in (1, 3, 7, 320, 641, 2**20 + 1):
        numbers, _ = launch_numbers(Shape("instance", 3, channels, 256), layout, False, 132)
        assert -(2**31) <= numbers["unit_magic"] < 2**31
        magic, shift = int(numbers["unit_magic"]) % 2**32, int(numbers["unit_shift"])
        for unit in (0, channels - 1, channels, 2 * channels - 1, 3 * channels - 1):
            assert (unit * magic >> 32) + unit >> shift == unit // channels


@needs_nvcc
@pytest.mark.parametrize(
    ("traits", "layout"),
    [
        (
            Traits(shape.mode, dtype, *(() if dtype == "float32" else (dtype, True, True))),
            choose_layout(shape, dtype, True, True, "sm_90a", 132),
        )
        for shape, dtype in [
            *((shape, dtype) for _, shape, dtype in workloads() if WORKLOADS[_] == "even"),
            (Shape("group", 1, 320, 192**2, 32), "bfloat16"),
            # Several waves.
            (Shape("instance", 32, 320, 512), "bfloat16"),
            (Shape("instance", 31, 321, 512), "bfloat16"),
            (Shape("group", 64, 128, 1024, 32), "bfloat16"),
            (Shape("group", 8, 256, 4096, 256), "float32"),
            (Shape("group", 8, 64, 512**2, 32), "bfloat16"),
            (Shape("group", 8, 704, 512**2, 704), "float32"),
        ]
    ],
)
def test_an_even_program_divides_nothing_and_spills_nothing(
    traits: Traits, layout: EvenLayout, tmp_path: pathlib.Path
) -> None:
    """A division has a slow path of 100 instructions; values in local memory are read twice."""
    module = import_module("tileops.norm.channels.programs.even")
    program = tilelang_backend.build(
        lambda: module.even(traits, layout), arch="sm_90a", pass_configs=PASS_CONFIGS
    )
    threads = layout.lanes * layout.units
    assert f"__launch_bounds__({threads}, {layout.blocks})" in program.source
    assert not re.search(r"state\[\d\] / ", program.source)
    ((spilled, registers),) = compiled(program.source, tmp_path)
    assert spilled == 0
    # What is left alone takes no more than 1024 threads have, or the layout were another.
    if layout.blocks == 1 and layout.accesses * layout.vector <= MOST_FLOATS:
        assert registers <= 64
    assert registers * threads * layout.blocks <= 65536


def compiled(source: str, folder: pathlib.Path) -> list[tuple[int, int]]:
    """Of each kernel, the bytes kept in local memory for want of registers, and its registers."""
    found = importlib.util.find_spec("tilelang")
    assert found is not None
    assert found.origin is not None
    root = pathlib.Path(found.origin).parent
    (folder / "program.cu").write_text(source)
    options = ["-std=c++17", "-O3", "-arch=sm_90a", "-cubin", "-Xptxas=-v", "-o", "program.cubin"]
    headers = [f"-I{root / 'src'}", f"-I{root / '3rdparty/cutlass/include'}"]
    done = subprocess.run(
        ["nvcc", *options, *headers, "program.cu"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stored = re.findall(r"(\d+) bytes spill stores", done.stderr)
    used = re.findall(r"Used (\d+) registers", done.stderr)
    return [(int(bytes_), int(n)) for bytes_, n in zip(stored, used, strict=True)]
