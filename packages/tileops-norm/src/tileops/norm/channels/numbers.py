"""What a layout's program is launched with for one shape: its numbers, and its workspace.

Pure Python. Sizes are in accesses of the layout's vector where the programs count in them.
"""

from __future__ import annotations

from tileops.norm.channels.layouts import (
    ColumnsLayout,
    ColumnsRunningLayout,
    ColumnsSplitLayout,
    EvenLayout,
    FlatLayout,
    HeldLayout,
    Layout,
    NothingLayout,
    RelayLayout,
    SplitLayout,
    columns_of,
)
from tileops.norm.channels.shapes import Shape, divider

__all__ = ["launch_numbers", "parts_of"]

#: Blocks that are launched where the work can be cut at will, for each multiprocessor.
BLOCKS_A_PROCESSOR = 8

#: Parts, for each multiprocessor, by which relay's first visits are ahead of the second ones beyond
#: a unit's parts.
AHEAD_A_PROCESSOR = 4


def launch_numbers(
    shape: Shape, layout: Layout, averages: bool, processors: int
) -> tuple[dict[str, float], int]:
    """The program's numbers by name, and the bytes of its workspace.

    ``averages`` says that many units move one running statistic.
    """
    if isinstance(layout, EvenLayout):
        return _even_numbers(shape, layout, averages)
    if isinstance(layout, (HeldLayout, RelayLayout, SplitLayout)):
        return _unit_numbers(shape, layout, averages, processors)
    if isinstance(layout, FlatLayout):
        magic, shift = _divider(shape.space // layout.vector)
        channel_magic, channel_shift = _divider(shape.channels)
        return {
            "size": shape.elements // layout.vector,
            "inner": shape.space // layout.vector,
            "groups": shape.channels,
            "magic": magic,
            "shift": shift,
            "channel_magic": channel_magic,
            "channel_shift": channel_shift,
        }, 0
    if isinstance(layout, NothingLayout):
        return {}, 0
    return _column_numbers(shape, layout, processors)


def _even_numbers(shape: Shape, layout: EvenLayout, averages: bool) -> tuple[dict[str, float], int]:
    if shape.size != layout.cluster * layout.lanes * layout.accesses * layout.vector:
        raise ValueError(f"{layout} serves no units of {shape.size} elements")
    if layout.filled and shape.units % layout.units:
        raise ValueError(f"{layout} serves no {shape.units} units")
    inner = shape.space // layout.vector
    magic, shift = divider(inner)
    unit_magic, unit_shift = divider(shape.groups)
    return {
        "units": shape.units,
        "inner": inner,
        "groups": shape.groups,
        "per": shape.segments,
        "magic": _signed(magic),
        "shift": shift,
        "unit_magic": _signed(unit_magic),
        "unit_shift": unit_shift,
    }, shape.units * 8 if averages else 0


def _unit_numbers(
    shape: Shape, layout: HeldLayout | RelayLayout | SplitLayout, averages: bool, processors: int
) -> tuple[dict[str, float], int]:
    vector = layout.vector
    straddle = not isinstance(layout, RelayLayout) and layout.straddle
    inner = shape.space if straddle else shape.space // vector
    magic, shift = _divider(inner)
    size = shape.size // vector
    numbers: dict[str, float] = {
        "units": shape.units,
        "size": size,
        "inner": inner,
        "stride": shape.stride // vector,
        "pitch": shape.pitch // vector,
        "groups": shape.groups,
        "per": shape.segments if shape.mode == "group" else 1,
        "magic": magic,
        "shift": shift,
        "elements": float(shape.size),
    }
    workspace = shape.units * 8 if averages else 0
    if isinstance(layout, HeldLayout):
        return numbers, workspace
    if isinstance(layout, SplitLayout):
        part = parts_of(shape.units, size, layout.threads, processors)
    else:
        part = layout.threads * layout.accesses
    numbers["part"] = part
    numbers["parts"] = parts = -(-size // part)
    workspace += shape.units * parts * 8
    if isinstance(layout, RelayLayout):
        # Without hints on an H200, 2 parts a multiprocessor took up to 7% more than 4, or as long.
        numbers["lead"] = min(parts + AHEAD_A_PROCESSOR * processors, shape.units * parts)
        workspace += shape.units * 8 + (shape.units + 1) * 4  # slots, counts
    return numbers, workspace


def parts_of(units: int, size: int, least: int, processors: int) -> int:
    """Accesses of a part, where each of ``units`` units of ``size`` is cut into parts.

    There are some blocks for each multiprocessor, but no part is below ``least`` accesses, nor so
    large that 32 bits do not count them.
    """
    parts = max(1, BLOCKS_A_PROCESSOR * processors // units)
    return min(max(-(-size // parts), least), 2**30)


def _column_numbers(
    shape: Shape,
    layout: ColumnsLayout | ColumnsSplitLayout | ColumnsRunningLayout,
    processors: int,
) -> tuple[dict[str, float], int]:
    columns = columns_of(shape, layout.vector, layout.threads)
    if columns is None:
        raise ValueError(f"{layout} serves no channels of {shape.space} elements")
    magic, shift = _divider(shape.space)
    numbers: dict[str, float] = {
        "samples": shape.samples,
        "channels": shape.channels,
        "space": shape.space,
        "width": shape.channels * shape.space // layout.vector,
        "tile": columns.accesses,
        "together": columns.channels,
        "magic": magic,
        "shift": shift,
        "elements": float(shape.samples * shape.space),
    }
    if isinstance(layout, ColumnsLayout):
        return numbers, 0
    rows = layout.threads // columns.accesses * layout.unroll
    numbers["part"] = part = max(parts_of(columns.tiles, shape.samples, rows, processors), 1)
    numbers["parts"] = parts = -(-shape.samples // part)
    return numbers, shape.channels * parts * 8 if isinstance(layout, ColumnsSplitLayout) else 0


def _signed(bits: int) -> int:
    """The signed number of 32 bits that has the bits of an unsigned one."""
    return bits - 2**32 if bits >= 2**31 else bits


def _divider(divisor: int) -> tuple[int, int]:
    """As :func:`divider`; of divisors that only wide places have, nothing is computed from it."""
    return divider(divisor) if divisor < 2**31 else (0, 0)
