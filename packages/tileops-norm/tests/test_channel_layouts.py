"""The channel norms' layouts: every shape has one that covers it and that a card can launch."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from importlib import import_module
from typing import Any

import pytest

from tileops.core import tilelang_backend
from tileops.norm.channels import layouts
from tileops.norm.channels.choices import choose_layout
from tileops.norm.channels.layouts import (
    ColumnsLayout,
    ColumnsRunningLayout,
    ColumnsSplitLayout,
    EvenLayout,
    FlatLayout,
    HeldLayout,
    NothingLayout,
    RelayLayout,
    SplitLayout,
    columns_of,
)
from tileops.norm.channels.numbers import launch_numbers
from tileops.norm.channels.pieces import PASS_CONFIGS
from tileops.norm.channels.shapes import Shape, divider
from tileops.norm.channels.traits import Traits
from tileops.norm.rows.configs import ITEMSIZE

ARCHS = {"sm_80": 108, "sm_89": 142, "sm_90a": 132, "sm_100a": 148, "sm_unheard_of": 20}
SPACES = (1, 2, 3, 7, 8, 49, 64, 100, 196, 441, 529, 1024, 3136, 12544, 65536, 2**20, 2**24 + 1)
SIZES = [
    (samples, channels)
    for samples in (1, 2, 7, 64, 1000, 100_000)
    for channels in (1, 3, 32, 40, 2048)
]


def shapes() -> Any:
    for (samples, channels), space in itertools.product(SIZES, SPACES):
        if samples * channels * space > 2**34:
            continue
        yield Shape("instance", samples, channels, space)
        yield Shape("batch", samples, channels, space)
        for groups in {1, channels} | ({8} if channels % 8 == 0 else set()):
            yield Shape("group", samples, channels, space, groups)


def fits(shape: Shape, layout: Any, dtype: str, arch: str, processors: int) -> None:
    """Requires that the layout reach every element and ask for what a block may have."""
    numbers, workspace = launch_numbers(shape, layout, False, processors)
    vector = layout.vector
    assert vector * ITEMSIZE[dtype] <= 16
    assert workspace >= 0
    assert getattr(layout, "cluster", 1) in ((1, 2, 4, 8) if arch in layouts.CLUSTERS else (1,))
    if isinstance(layout, (HeldLayout, RelayLayout, SplitLayout)):
        assert shape.run % vector == 0
        assert getattr(layout, "straddle", False) or shape.space % vector == 0
        size = shape.size // vector
        if not getattr(layout, "wide", False):
            assert size < 2**31
    if isinstance(layout, EvenLayout):
        assert shape.elements < 2**31
        assert vector * ITEMSIZE[dtype] == 16
        assert shape.space % vector == 0
        # The numbers of the launch are those of this size, or launch_numbers had raised.
        assert layout.lanes * layout.units % 32 == 0
        assert layout.lanes % 32 == 0 or layout.lanes in (1, 2, 4, 8, 16)
        assert layout.cluster == 1 or (layout.units == 1 and layout.lanes >= layout.cluster)
        assert layout.lanes * layout.units <= 512
        assert layout.accesses <= 18
        threads = layout.lanes * layout.units
        launched = -(-shape.units // layout.units) * layout.cluster
        needed = -(-launched // processors)
        assert 1 <= layout.blocks <= min(needed, 1024 // threads, 16)
        assert 4 * layout.accesses + 20 <= 65536 // (layout.blocks * threads)
        assert layout.filled == (layout.units > 1 and shape.units % layout.units == 0)
        assert not layout.past_l1 or (threads <= 128 and needed <= 16)
        # Several waves are of no small blocks, of which a multiprocessor takes too few.
        assert threads >= 128 or needed * threads <= 1024
    elif isinstance(layout, HeldLayout):
        assert layout.lanes * layout.units <= 1024
        assert layout.cluster * layout.lanes * layout.accesses >= size
        assert layout.accesses * vector * ITEMSIZE[dtype] <= 208  # bytes of a thread's registers
        assert layout.cluster == 1 or (layout.units == 1 and layout.lanes % 32 == 0)
    elif isinstance(layout, (RelayLayout, SplitLayout)):
        parts, part = int(numbers["parts"]), int(numbers["part"])
        assert parts * part >= size > (parts - 1) * part
        assert shape.units * parts < 2**31
        assert part < 2**31
        if isinstance(layout, RelayLayout):
            assert parts <= numbers["lead"] <= shape.units * parts < 2**30
            assert size * vector * shape.units < 2**31
    elif isinstance(layout, FlatLayout):
        assert shape.space % vector == 0
        assert layout.wide or shape.elements < 2**31
    else:
        columns = columns_of(shape, vector, layout.threads)
        assert columns is not None
        assert columns.accesses <= layout.threads
        assert columns.channels <= layouts.MOST_CHANNELS
        assert columns.channels * shape.space == columns.accesses * vector
        assert columns.tiles * columns.channels >= shape.channels
        assert shape.channels * shape.space % vector == 0
        rows = layout.threads // columns.accesses
        if isinstance(layout, ColumnsLayout):
            assert layout.cluster * rows * layout.accesses >= shape.samples
            assert layout.accesses <= 16
        else:
            assert numbers["parts"] * numbers["part"] >= shape.samples
            assert numbers["parts"] <= 65535


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("arch", ARCHS)
def test_every_shape_has_a_layout_that_covers_it(arch: str, dtype: str) -> None:
    for shape in shapes():
        for aligned, own in itertools.product((True, False), repeat=2):
            layout = choose_layout(shape, dtype, aligned, own, arch, ARCHS[arch])
            try:
                fits(shape, layout, dtype, arch, ARCHS[arch])
            except AssertionError as error:
                raise AssertionError(f"{shape} {aligned=} {own=} {layout}") from error


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0)])
def test_of_no_elements_nothing_is_launched(shape: tuple[int, int, int]) -> None:
    for mode in ("group", "instance", "batch"):
        sizes = Shape(mode, *shape, num_groups=2)  # type: ignore[arg-type]
        assert choose_layout(sizes, "float16", True, True, "sm_90a", 132) == NothingLayout()


#: Shapes that were measured on an H200, and what was best or within 4% of it there.
CHOSEN = [
    (Shape("group", 8, 128, 1024, 32), "float16", EvenLayout(1, 256, 1, 2, 8)),
    (Shape("group", 1, 640, 2048, 32), "float16", EvenLayout(4, 256, 1, 5, 8, 1, True)),
    (Shape("group", 2, 1280, 1024, 32), "float16", EvenLayout(2, 512, 1, 5, 8, 1, True)),
    (Shape("group", 2, 320, 128**2, 32), "float16", EvenLayout(8, 256, 1, 10, 8, 4, True)),
    (Shape("group", 1, 320, 192**2, 32), "float16", EvenLayout(8, 384, 1, 15, 8, 2, True)),
    (Shape("group", 16, 128, 1024, 32), "float16", EvenLayout(1, 256, 1, 2, 8)),
    (Shape("group", 8, 1280, 1024, 32), "float16", EvenLayout(2, 256, 1, 10, 8, 4, True)),
    (Shape("group", 64, 128, 1024, 32), "float16", EvenLayout(1, 128, 1, 4, 8)),
    (Shape("group", 8, 320, 128**2, 32), "float16", EvenLayout(8, 256, 1, 10, 8, 4, True)),
    (Shape("group", 2, 320, 192**2, 32), "float16", EvenLayout(8, 384, 1, 15, 8, 2, True)),
    (Shape("group", 8, 64, 512**2, 32), "float16", EvenLayout(8, 512, 1, 16, 8, 1, True)),
    (Shape("group", 8, 64, 512**2, 8), "float16", RelayLayout(256, 8, 4, 8)),
    (Shape("group", 1, 512, 256**2, 32), "float16", RelayLayout(256, 8, 4, 8)),
    (Shape("group", 1, 128, 1024**2, 32), "float16", RelayLayout(256, 8, 4, 8)),
    (Shape("group", 4, 256, 1023, 32), "float16", HeldLayout(1, 512, 1, 2, 8, True, False)),
    (Shape("instance", 1, 256, 64**2), "float32", EvenLayout(1, 256, 1, 4, 4)),
    *(
        (Shape("instance", samples, channels, space), "float16", EvenLayout(*sizes, **flags))
        for samples, channels, space, sizes, flags in [
            (2, 64, 8**3, (1, 32, 1, 2, 8), {"past_l1": True}),
            (1, 264, 8**3, (1, 32, 2, 2, 8), {"filled": True, "past_l1": True}),
            (1, 396, 8**3, (1, 32, 4, 2, 8), {"filled": True, "past_l1": True}),
            (2, 320, 8**3, (1, 32, 4, 2, 8), {"filled": True, "past_l1": True}),
            (4, 320, 8**3, (1, 32, 4, 2, 8), {"filled": True, "past_l1": True}),
            (32, 320, 8**3, (1, 32, 4, 2, 8), {"filled": True}),
            (2, 320, 256, (1, 32, 4, 1, 8), {"filled": True, "past_l1": True}),
            (2, 320, 1024, (1, 64, 1, 2, 8), {}),
        ]
    ),
    (Shape("instance", 8, 256, 64**2), "float32", EvenLayout(1, 128, 1, 8, 4)),
    (Shape("instance", 8, 64, 512**2), "float16", EvenLayout(8, 512, 1, 8, 8, 2)),
    (Shape("instance", 2, 32, 128**3), "float16", RelayLayout(256, 8, 4, 8)),
    (Shape("batch", 64, 256, 56**2), "float16", HeldLayout(8, 256, 1, 13, 8, False, False)),
    (Shape("batch", 64, 64, 112**2), "float16", RelayLayout(256, 8, 4, 8)),
    (Shape("batch", 64, 2048, 49), "float16", ColumnsLayout(1, 256, 8, 16)),
    (Shape("batch", 8192, 1024, 1), "float16", ColumnsLayout(8, 512, 8, 16)),
    (Shape("batch", 131_072, 1024, 1), "float16", ColumnsSplitLayout(256, 8, 4)),
]


@pytest.mark.parametrize(("shape", "dtype", "layout"), CHOSEN)
def test_what_is_chosen_on_an_h200(shape: Shape, dtype: str, layout: Any) -> None:
    assert choose_layout(shape, dtype, True, True, "sm_90a", 132) == layout


def test_running_statistics_have_layouts_of_their_own() -> None:
    flat = choose_layout(Shape("batch", 4, 8, 64), "float16", True, False, "sm_90a", 132)
    assert flat == FlatLayout(256, 8, 1, wide=False)
    columns = choose_layout(Shape("batch", 4, 8, 49), "float16", True, False, "sm_90a", 132)
    assert columns == ColumnsRunningLayout(128, 8, 4)


def test_division_by_a_number_known_at_the_launch() -> None:
    """What the kernels do instead of a division, over the borders of every quotient."""
    draw = random.Random(0)
    divisors = [*range(1, 70), 3136, 2**30, 2**30 + 1, 2**31 - 1]
    for divisor in [*divisors, *(draw.randrange(1, 2**31) for _ in range(500))]:
        magic, shift = divider(divisor)
        times = draw.randrange(2**31 // divisor)
        for n in (0, 1, divisor - 1, divisor, times * divisor - 1, times * divisor, 2**31 - 1):
            if 0 <= n < 2**31:
                high = n * magic >> 32
                assert high + n < 2**32
                assert high + n >> shift == n // divisor


needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="building needs nvcc")

PROGRAMS: dict[str, tuple[Traits, Any, str]] = {
    "held": (
        Traits("group", "float16", "float16", True, True),
        HeldLayout(4, 256, 1, 5, 8, straddle=False, wide=False),
        "mapa.shared::cluster",
    ),
    "even": (
        Traits("group", "bfloat16", "float32", True, True),
        EvenLayout(4, 320, 1, 5, 8, blocks=2),
        "cudaGridDependencySynchronize",
    ),
    "split": (
        Traits("batch", "bfloat16", "float32", True, True, "float32", True, True),
        SplitLayout(256, 8, 4, straddle=False, wide=False),
        "split_kernel_1",
    ),
    "columns": (
        Traits("batch", "float16", "float32", True, True, "float32", True),
        ColumnsLayout(1, 512, 8, 7),
        "uint4",
    ),
}


@needs_nvcc
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_build_without_a_card(name: str) -> None:
    """And take as many parameters as they are launched with."""
    traits, layout, expected = PROGRAMS[name]
    module = import_module(f"tileops.norm.channels.programs.{name}")
    made: list[Any] = []

    def make() -> Any:
        made.append(getattr(module, name)(traits, layout))
        return made[0]

    program = tilelang_backend.build(make, arch="sm_90a", pass_configs=PASS_CONFIGS)
    assert program.symbol == name
    assert expected in program.source
    assert len(made[0].params) == len(module.PARAMETERS)


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "traits", "layout"),
    [
        ("held", PROGRAMS["held"][0], HeldLayout(4, 256, 1, 5, 8, False, False)),
        ("even", PROGRAMS["held"][0], EvenLayout(4, 256, 1, 5, 8)),
        ("columns", PROGRAMS["columns"][0], ColumnsLayout(2, 128, 8, 16)),
    ],
)
def test_where_a_cluster_sends_to_nothing_else_is(name: str, traits: Traits, layout: Any) -> None:
    """TileLang 0.1.15 gave the barrier's place to a buffer that comes later, while some threads
    still waited at it."""
    module = import_module(f"tileops.norm.channels.programs.{name}")
    program = tilelang_backend.build(
        lambda: getattr(module, name)(traits, layout), arch="sm_90a", pass_configs=PASS_CONFIGS
    )
    places = re.findall(r"void\* (\w+) = .*buf_dyn_shmem \+ (\d+)", program.source)
    boxes = {"held": ("partial",), "even": ("partial",), "columns": ("theirs", "final")}[name]
    taken = [place for _, place in places]
    for wanted in ("barrier", *boxes):
        (place,) = [place for buffer, place in places if buffer == wanted]
        assert taken.count(place) == 1, places


TRAINING = ("float16", "float32", True, True, "float32", True)


@pytest.mark.parametrize(
    ("name", "traits", "layout"),
    [
        ("held", Traits("instance", *TRAINING[:5]), HeldLayout(4, 256, 1, 5, 8, False, False)),
        ("even", Traits("instance", *TRAINING[:5]), EvenLayout(4, 256, 1, 5, 8)),
        ("held", Traits("batch", *TRAINING, True), HeldLayout(4, 256, 1, 5, 8, False, False)),
        ("columns", Traits("batch", *TRAINING, True), ColumnsLayout(4, 256, 8, 4)),
    ],
)
def test_all_launches_of_a_program_of_clusters_are_of_whole_clusters(
    monkeypatch: pytest.MonkeyPatch, name: str, traits: Traits, layout: Any
) -> None:
    """TileLang 0.1.15 launches all of a program's kernels with the cluster of the first. One block
    that followed was no cluster of four, and the launch failed."""
    language = pytest.importorskip("tilelang.language")
    arith = pytest.importorskip("tvm.arith")
    blocks: list[Any] = []
    plain = language.Kernel

    def kernel(*given: Any, **options: Any) -> Any:
        blocks.append(given[0])
        return plain(*given, **options)

    monkeypatch.setattr(language, "Kernel", kernel)
    getattr(import_module(f"tileops.norm.channels.programs.{name}"), name)(traits, layout)
    assert len(blocks) == 2
    for count in blocks:
        assert arith.Analyzer().can_prove_equal(count % layout.cluster, 0), count


@pytest.mark.parametrize(
    "name",
    ["held", "even", "relay", "split", "columns", "columns_split", "flat", "columns_running"],
)
def test_every_program_gets_its_numbers(name: str) -> None:
    """Whatever is no tensor among a program's parameters is a number of the launch."""
    made: dict[str, tuple[Shape, Any]] = {
        "held": (Shape("group", 2, 8, 64, 2), HeldLayout(1, 32, 4, 1, 8, False, False)),
        "even": (Shape("instance", 2, 8, 64), EvenLayout(1, 8, 4, 1, 8)),
        "relay": (Shape("instance", 2, 8, 64), RelayLayout(256, 8, 4, 8)),
        "split": (Shape("instance", 2, 8, 64), SplitLayout(256, 8, 4, False, False)),
        "columns": (Shape("batch", 2, 8, 49), ColumnsLayout(1, 512, 8, 1)),
        "columns_split": (Shape("batch", 2, 8, 49), ColumnsSplitLayout(512, 8, 4)),
        "flat": (Shape("batch", 2, 8, 64), FlatLayout(256, 8, 4, False)),
        "columns_running": (Shape("batch", 2, 8, 49), ColumnsRunningLayout(256, 8, 4)),
    }
    shape, layout = made[name]
    numbers, workspace = launch_numbers(shape, layout, True, 132)
    tensors = {"x", "weight", "bias", "y", "running_mean", "running_var", "counter"}
    parameters = set(import_module(f"tileops.norm.channels.programs.{name}").PARAMETERS)
    assert parameters - tensors - {"workspace", "eps", "momentum"} <= set(numbers)
    assert ("workspace" in parameters) >= (workspace > 0 and name not in ("flat",))
