"""How the row programs read and write rows, as TileLang macros over one thread's registers.

A row, or a block's slice of it, is covered by *accesses*: access ``i`` of a thread is the
``vector`` elements that start at ``(i * lanes + lane) * vector``, so that the threads of a row
touch neighbouring memory. What is outside the row reads as zeros and is never written; where every
access is inside the row, no guard is emitted.

In a *phased* layout rows do not start where a wide access may: the accesses of a row start
``phase`` elements before it, up to ``vector - 1``. x, y and what has their shape have the same
phase in every row, so all their accesses are wide but for the two at a row's ends. A weight has a
phase of its own: it is read by two wide accesses, and shifted.

Tensors are addresses here, not TileLang's buffers: those cannot be accessed with cache hints, and
TileLang 0.1.15 would guard each access by the buffer's size a second time.
"""

from types import SimpleNamespace
from typing import Any

from tileops.norm.rows.configs import HINTS, ITEMSIZE, Config, RowConfig
from tileops.norm.rows.ops import RowOp

__all__ = ["Line", "Place", "moves"]


class Line(SimpleNamespace):
    """One row of a tensor.

    ``tensor``: its address. ``base``: the row's first element. ``kind``: the dtype. ``own_phase``:
    whether its phase is not that of x's row; such rows are never written.
    """


class Place(SimpleNamespace):
    """Where a thread is.

    ``row`` and ``m``: its row, and how many there are. ``base`` and ``phase``: the row's first
    element in memory, and how far before it the row's accesses start. ``rank`` and ``lane``: its
    block among the row's, and its place among the row's threads of the block. ``thread``: its
    place in the block. ``a``: the program's parameters by name.
    """


def moves(op: RowOp, n: int, dtype: str, config: Config) -> Any:
    """Macros that move rows of ``n``; ``at`` is a Place."""
    import tilelang.language as T

    lanes, vector, phased = config.lanes, config.vector, config.phased
    slice_size = config.accesses(n) * lanes * vector
    even = not phased and n == slice_size * config.cluster
    load, again = HINTS.index(config.load), HINTS.index(config.again)
    columns_hint, store = HINTS.index(config.columns), HINTS.index(config.store)
    out_dtype = "float8_e4m3fn" if op.quantized else dtype
    # Rows that share a weight have no registers to lose.
    widened = config.sharing if isinstance(config, RowConfig) else config.products

    def start(at: Any, i: Any) -> Any:
        """The element of the row at which access ``i`` begins."""
        return at.rank * slice_size + (i * lanes + at.lane) * vector - at.phase

    def whole(i: Any) -> bool:
        """Whether access ``i`` is known to be inside the row, in every thread."""
        known = config.cluster == 1 and isinstance(i, int) and (i > 0 or not phased)
        return even or (known and (i + 1) * lanes * vector <= n)

    def inside(at: Any, i: Any) -> Any:
        """Whether all of access ``i`` is inside the row."""
        first = start(at, i)
        within = T.And(first >= 0, first + vector <= n) if phased else first < n
        if whole(i):
            return True if config.rows == 1 else at.row < at.m
        return within if config.rows == 1 else T.And(at.row < at.m, within)

    def has(at: Any, i: Any, v: Any) -> Any:
        """Whether element ``v`` of access ``i`` is inside the row."""
        first = start(at, i)
        within = T.And(first + v >= 0, first + v < n) if phased else first < n
        return within if config.rows == 1 else T.And(at.row < at.m, within)

    def counted(count: int) -> Any:
        """Accesses 0 to ``count``: spelt out where their guards differ."""
        return T.unroll(count) if even else tuple(range(count))

    def address(line: Any, at: Any, i: Any) -> Any:
        """Of access ``i`` of a row."""
        return line.tensor + (line.base + start(at, i)) * ITEMSIZE[line.kind]

    def ends(line: Any) -> tuple[Any, Any]:
        """The addresses of a row, and of what follows it."""
        begin = line.tensor + line.base * ITEMSIZE[line.kind]
        return begin, begin + n * ITEMSIZE[line.kind]

    def edges(at: Any, i: Any) -> tuple[Any, Any]:
        """From which to which of access ``i``'s elements are inside the row: none where there is
        no such row."""
        first = T.cast(start(at, i), "int32")
        last = n - first
        return -first, last if config.rows == 1 else T.if_then_else(at.row < at.m, last, 0)

    def there(at: Any) -> Any:
        """Whether the thread has a row."""
        return True if config.rows == 1 else at.row < at.m

    def line(at: Any, name: str, kind: str = dtype) -> Line:
        """The thread's row of a tensor of x's shape."""
        return Line(tensor=getattr(at.a, name), base=at.base, kind=kind, own_phase=False)

    @T.macro
    def read_access(line, to, slot, at, i, hint):
        """to[slot] = access i of the row."""
        size = vector * ITEMSIZE[line.kind]
        if phased and line.own_phase:
            if there(at):
                if whole(i):
                    T.call_extern(
                        "handle",
                        f"rows::get_shifted<{size}, {hint}, true>",
                        T.address_of(to[slot, 0]),
                        address(line, at, i),
                    )
                else:
                    T.call_extern(
                        "handle",
                        f"rows::get_clamped<{size}, {ITEMSIZE[line.kind]}, {hint}>",
                        T.address_of(to[slot, 0]),
                        address(line, at, i),
                        *ends(line),
                    )
        elif inside(at, i):
            T.call_extern(
                "handle",
                f"rows::get<{size}, {hint}, {'true' if line.own_phase else 'false'}>",
                T.address_of(to[slot, 0]),
                address(line, at, i),
            )
        elif phased:
            T.call_extern(
                "handle",
                f"rows::get_edge<{ITEMSIZE[line.kind]}>",
                T.address_of(to[slot, 0]),
                address(line, at, i),
                *edges(at, i),
            )
        elif not whole(i) or config.rows > 1:
            for v in T.vectorized(vector):
                to[slot, v] = T.cast(0, line.kind)

    @T.macro
    def write_access(line, values, at, i):
        """Access i of the row = values."""
        if inside(at, i):
            T.call_extern(
                "handle",
                f"rows::put<{vector * ITEMSIZE[line.kind]}, {store}>",
                address(line, at, i),
                T.address_of(values[0]),
            )
        elif phased:
            T.call_extern(
                "handle",
                f"rows::put_edge<{vector}, {ITEMSIZE[line.kind]}>",
                address(line, at, i),
                T.address_of(values[0]),
                *edges(at, i),
            )

    @T.macro
    def read_columns(columns, count, at, i):
        """Each column's buffer [count] = accesses i on of its row."""
        for column in columns:
            for k in counted(count):
                read_access(column.line, column.buffer, k, at, i + k, columns_hint)

    @T.macro
    def read_rows(held, other, count, at, i):
        """held [count] = x from access i on, and other the residual where there is one."""
        for k in counted(count):
            read_access(line(at, "x"), held, k, at, i + k, load)
        if op.added:
            for k in counted(count):
                read_access(line(at, "residual"), other, k, at, i + k, load)

    @T.macro
    def add_rows(held, other, gates, count, at, i):
        """held += other, or held = other + gate * held; rounded, and written."""
        if op.added:
            for k in counted(count):
                values = T.alloc_local((vector,), dtype)
                for v in T.unroll(vector):
                    if op.gated:
                        values[v] = T.cast(
                            T.cast(other[k, v], "float32")
                            + T.cast(gates[0].buffer[k, v], "float32")
                            * T.cast(held[k, v], "float32"),
                            dtype,
                        )
                    else:
                        values[v] = T.cast(
                            T.cast(other[k, v], "float32") + T.cast(held[k, v], "float32"), dtype
                        )
                if op.gated and phased and not whole(i + k if isinstance(i, int) else i):
                    # Outside the row the gate is any number, and no zero stays one.
                    for v in T.unroll(vector):
                        values[v] = T.if_then_else(has(at, i + k, v), values[v], T.cast(0, dtype))
                for v in T.unroll(vector):
                    held[k, v] = values[v]
                write_access(line(at, "residual_out"), values, at, i + k)

    @T.macro
    def read_again(held, count, at, i):
        """held [count] = what was read, or added up and written, from access i on."""
        for k in counted(count):
            source = line(at, "residual_out" if op.added else "x")
            read_access(source, held, k, at, i + k, again)

    @T.macro
    def write_rows(values, slot, factor, at, i):
        """Access i of y = values[slot], float32 and rounded here; quantized times factor[0]."""
        rounded = T.alloc_local((vector,), out_dtype)
        if op.quantized:
            T.call_extern(
                "handle",
                f"rows::to_float8<{vector}>",
                T.address_of(rounded[0]),
                T.address_of(values[slot, 0]),
                factor[0],
            )
        elif config.products:
            # Casts are the same instructions; groups of rows are scheduled worse with them, and
            # spill.
            T.call_extern(
                "handle",
                f"rows::narrow<{vector}, {'true' if dtype == 'float16' else 'false'}>",
                T.address_of(rounded[0]),
                T.address_of(values[slot, 0]),
            )
        else:
            for v in T.unroll(vector):
                rounded[v] = T.cast(values[slot, v], dtype)
        write_access(line(at, "y", out_dtype), rounded, at, i)

    @T.macro
    def widen(floats, slot, packed, k, kind):
        """floats[slot] = packed[k], which is of dtype ``kind``, as float32."""
        if kind == "bfloat16" and vector % 2 == 0:
            T.call_extern(
                "handle",
                f"rows::widen<{vector}>",
                T.address_of(floats[slot, 0]),
                T.address_of(packed[k, 0]),
            )
        else:
            for v in T.unroll(vector):
                floats[slot, v] = T.cast(packed[k, v], "float32")

    def number(held: Any, wide: Any, k: int, v: int) -> Any:
        """held[k, v] as float32; where ``widened`` that of ``wide``, which is held[k] widened."""
        return wide[0, v] if widened else T.cast(held[k, v], "float32")

    @T.macro
    def keep_packed(held, count, kind, known):
        """Keep ``held`` from one pass to the next as it is in memory: see device.py."""
        if ITEMSIZE[kind] < 4 and vector > 1:
            for k in T.unroll(count):
                T.call_extern(
                    "handle",
                    f"rows::keep_packed<{vector * ITEMSIZE[kind]}>",
                    T.address_of(held[k, 0]),
                    known[0],
                )

    @T.macro
    def keep_narrow(held, k, kind, known):
        """Keep held[k] as it is in memory until ``known`` is known: see device.py."""
        if ITEMSIZE[kind] < 4 and vector > 1:
            T.call_extern(
                "handle",
                f"rows::keep_narrow<{vector * ITEMSIZE[kind]}>",
                T.address_of(held[k, 0]),
                known,
            )

    return SimpleNamespace(
        even=even,
        slice_size=slice_size,
        whole=whole,
        has=has,
        counted=counted,
        read_columns=read_columns,
        read_rows=read_rows,
        add_rows=add_rows,
        read_again=read_again,
        write_rows=write_rows,
        widened=widened,
        widen=widen,
        number=number,
        keep_packed=keep_packed,
        keep_narrow=keep_narrow,
    )
