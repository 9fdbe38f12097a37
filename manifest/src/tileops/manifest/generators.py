"""The values of inputs that carry them (lengths, page tables, positions), for workloads.

A generator is deterministic, so that a roofline counts exactly the work of the call that a
benchmark makes. Values are flat, in row-major order.

========== ============================================= =========================================
kind       takes                                         gives
========== ============================================= =========================================
lengths    ``each`` or ``values`` (repeated); ``total``  lengths; with ``total`` they sum to it
cu_seqlens ``each`` or ``values`` (repeated); ``total``  0 and the running sums of the lengths
block_table ``lengths``, ``page_size``, ``below``        for each row the pages that its length
                                                         needs, all different, then zeros
slots      ``below``                                     different numbers in scattered order
positions  ``start``, or ``lengths``                     0, 1, 2, … along the last axis, or from 0
                                                         again for each sequence of a cu_seqlens
range      ``start``, ``below``                          scattered numbers, perhaps repeated
constant   ``value``                                     one number everywhere
========== ============================================= =========================================
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tileops.manifest.expressions import Expression

__all__ = ["ARGUMENTS", "GeneratorError", "generate"]

Values = Mapping[str, Any]

MAX_VALUES: Final = 2**22
"""What a generated input holds at most: a block table of 4096 sequences with 1024 pages each."""

ARGUMENTS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "lengths": (frozenset(), frozenset({"each", "values", "total"})),
    "cu_seqlens": (frozenset(), frozenset({"each", "values", "total"})),
    "block_table": (frozenset({"lengths", "page_size", "below"}), frozenset()),
    "slots": (frozenset({"below"}), frozenset()),
    "positions": (frozenset(), frozenset({"start", "lengths"})),
    "range": (frozenset({"below"}), frozenset({"start"})),
    "constant": (frozenset({"value"}), frozenset()),
}
"""The arguments that each kind needs, and those that it also takes."""


class GeneratorError(Exception):
    """A generator whose arguments do not fit the call."""


class _Context:
    """A generator's arguments, evaluated over the call's dims and params."""

    def __init__(
        self,
        arguments: Values,
        names: Values,
        made: Mapping[str, list[int]],
        shape: tuple[int, ...],
    ) -> None:
        self.arguments = arguments
        self.names = names
        self.made = made
        self.shape = shape
        self.count = math.prod(shape)

    def number(self, key: str, default: int = 0) -> int:
        value = self.arguments.get(key, default)
        if isinstance(value, str):
            try:
                value = Expression(value).evaluate(self.names)
            except KeyError as error:
                raise GeneratorError(f"{key} reads {error}, which the call does not have") from None
        if not isinstance(value, int) or isinstance(value, bool):
            raise GeneratorError(f"{key} is an int, not {value!r}")
        return value

    def other(self, key: str) -> list[int]:
        """Return the values of the input that ``key`` names."""
        name = self.arguments[key]
        if name not in self.made:
            raise GeneratorError(f"{key} names {name!r}, which no generator has made before it")
        return self.made[name]

    def lengths(self, count: int) -> list[int]:
        if ("each" in self.arguments) == ("values" in self.arguments):
            raise GeneratorError("it takes `each` or `values`, one of the two")
        if "each" in self.arguments:
            found = [self.number("each")] * count
        else:
            found = list(itertools.islice(itertools.cycle(self.arguments["values"]), count))
        if any(length < 0 for length in found):
            raise GeneratorError("lengths are at least 0")
        total = self.arguments.get("total")
        if total is not None and sum(found) != self.names.get(total):
            raise GeneratorError(
                f"the lengths sum to {sum(found)}, and {total} is {self.names.get(total)}"
            )
        return found


def generate(
    generators: Mapping[str, Values], shapes: Mapping[str, tuple[int, ...]], names: Values
) -> dict[str, list[int]]:
    """Return the values of every input that has a generator, in the order of ``generators``.

    ``names`` gives the call's dims and params, which arguments may read.

    :raises GeneratorError: an argument is missing, unknown or does not fit; its text starts with
        the input's name.
    """
    made: dict[str, list[int]] = {}
    for name, arguments in sorted(generators.items(), key=lambda item: "lengths" in item[1]):
        kind = arguments["kind"]
        needed, allowed = ARGUMENTS[kind]
        given = arguments.keys() - {"kind"}
        try:
            if needed - given:
                raise GeneratorError(f"{kind} needs {', '.join(sorted(needed - given))}")
            if given - needed - allowed:
                raise GeneratorError(
                    f"{kind} takes no {', '.join(sorted(given - needed - allowed))}"
                )
            if math.prod(shapes[name]) > MAX_VALUES:
                raise GeneratorError(
                    f"it has {math.prod(shapes[name])} values; at most {MAX_VALUES} are generated"
                )
            made[name] = list(_MAKERS[kind](_Context(arguments, names, made, shapes[name])))
        except GeneratorError as error:
            raise GeneratorError(f"{name}: {error}") from None
    return made


def _lengths(context: _Context) -> list[int]:
    return context.lengths(context.count)


def _cu_seqlens(context: _Context) -> Iterator[int]:
    return itertools.accumulate(context.lengths(max(0, context.count - 1)), initial=0)


def _block_table(context: _Context) -> Iterator[int]:
    lengths, size, pool = (
        context.other("lengths"),
        context.number("page_size"),
        context.number("below"),
    )
    rows, width = context.shape
    needed = [-(-length // size) for length in lengths]
    if len(needed) != rows:
        raise GeneratorError(f"it has {rows} rows for {len(needed)} lengths")
    if max(needed, default=0) > width or sum(needed) > pool:
        raise GeneratorError(
            f"the lengths need {sum(needed)} pages, at most {max(needed, default=0)} a row; "
            f"there are {pool}, and {width} a row"
        )
    pages = _scattered(pool)
    for count in needed:
        yield from itertools.islice(pages, count)
        yield from itertools.repeat(0, width - count)


def _slots(context: _Context) -> Iterator[int]:
    below = context.number("below")
    if below < context.count:
        raise GeneratorError(f"{context.count} different numbers are not below {below}")
    return itertools.islice(_scattered(below), context.count)


def _positions(context: _Context) -> Iterator[int]:
    if "lengths" in context.arguments:
        starts = context.other("lengths")
        row = [range(b - a) for a, b in itertools.pairwise(starts)]
    else:
        start = context.number("start")
        row = [range(start, start + (context.shape[-1] if context.shape else 1))]
    if not any(row):
        return iter(())
    return itertools.islice(itertools.chain.from_iterable(itertools.cycle(row)), context.count)


def _range(context: _Context) -> Iterator[int]:
    start, below = context.number("start"), context.number("below")
    if below <= start:
        raise GeneratorError(f"no number is at least {start} and below {below}")
    source = random.Random(0)
    return (source.randrange(start, below) for _ in range(context.count))


def _constant(context: _Context) -> Iterator[int]:
    return itertools.repeat(context.number("value"), context.count)


def _scattered(count: int) -> Iterator[int]:
    """Yield every number below ``count`` once, neighbours far apart."""
    step = max(1, int(count * 0.618))
    while math.gcd(step, count) != 1:
        step += 1
    return ((index * step) % count for index in range(count))


_MAKERS: Final[Mapping[str, Callable[[_Context], Any]]] = {
    "lengths": _lengths,
    "cu_seqlens": _cu_seqlens,
    "block_table": _block_table,
    "slots": _slots,
    "positions": _positions,
    "range": _range,
    "constant": _constant,
}
