"""The sinusoidal table as TileLang programs for short tables, of fewer than 2**31 accesses.

The table is what ``any_size`` says. What takes time in a short one is what comes before the first
store, and the instructions of a pair. One axis of the grid goes down the rows and one along them,
so that nothing is divided by what is not a constant, and indices have 32 bits. A thread owns one
access of a row, or one of each half, and makes ``rows`` rows.

Frequencies are float64, in turns a position: they take fewer instructions than the integers of
``any_size`` (on an H200, 4096x1024 of float32 in one layout 5.23 µs beside 5.28, 1024x1024 2.42
beside 2.48). An angle is rounded to 2**-32 of a turn, so off by 2**-33, and by the position times
the frequency's error. Frequencies are at most 1 / (2 pi), and rows at most 2**22, so that no angle
reaches 2**20 turns.

``short_sinusoidal`` reads a frequency for each pair. It is launched with ``(table, turns, seq_len,
accesses, groups, across)``: two addresses, S, the accesses of a row (of a half of one, where the
halves are apart), the blocks that the rows take, and those that a row takes, all as int32.

``factored_sinusoidal`` reads nothing: it makes a thread's frequencies of the bits of their index,
while the other would wait for them (512x512 of float32: 1.60 µs beside 1.72). Frequency k is
``scale`` times ``r[b]`` for each bit b of k that is set: ``scale`` is 1 / (2 pi), and ``r[b]`` is
``base ** (-2 ** (b + 1) / E)``. It is launched with ``(table, seq_len, accesses, groups, across,
scale, r0 … r9)``. A frequency is off by at most 2**-50 of a turn a position: 11 numbers rounded to
float64, and 11 products.

See ``tileops.core.tilelang_backend`` for that convention.
"""

from typing import Any

from tileops.positional.sinusoidal.configs import ShortConfig

__all__ = ["SHORT_PASS_CONFIGS", "factored_sinusoidal", "short_sinusoidal"]

#: Every access of a short table is guarded; TileLang's guards in 64 bits would come on top.
SHORT_PASS_CONFIGS = {"tl.disable_safe_memory_legalize": True}


def _rows(dtype: str, interleaved: bool, config: ShortConfig) -> Any:
    """The macro that makes and stores a thread's rows."""
    import tilelang.language as T

    from tileops.positional.sinusoidal.pieces import sine_and_cosine

    lines, vector, rows = config.lines, config.vector, config.rows
    pairs = vector // 2 if interleaved else vector
    halves = 1 if interleaved else 2
    values = sine_and_cosine(precise=dtype == "float32")

    def angle_of(row: Any, frequency: Any) -> Any:
        """In 2**-32 of a turn, as a uint32."""
        # In float64 by its bits, 2**52 and the row: a conversion takes longer. The last bit of a
        # number from 2**20 to 2**21 is 2**-32.
        exponent = T.uint64(0x433 << 52)
        position = T.bitwise_or(T.cast(T.cast(row, "uint32"), "uint64"), exponent)
        position = T.reinterpret(position, "float64") - T.float64(2.0**52)
        sum_ = T.reinterpret(position * frequency + T.float64(2.0**20), "uint64")
        return T.cast(T.bitwise_and(sum_, T.uint64(2**32 - 1)), "uint32")

    @T.macro
    def make_rows(table, frequency, line, mine, seq_len, accesses, group):
        Y = T.make_tensor_from_addr(table, (seq_len * accesses * halves, vector), dtype)
        value = T.alloc_local((2 * pairs,), "float32")
        out = T.alloc_local((2 * pairs,), dtype)
        # In variables, as are line and mine, since what is computed in place for an index is
        # computed in 64 bits.
        at = T.alloc_local((1,), "int32")
        for j in T.unroll(rows, unroll_factor=1):
            row = (group * rows + j) * lines + line[0]
            if row < seq_len:
                for p in T.unroll(pairs):
                    angle = angle_of(row, frequency[p])
                    if interleaved:
                        values(value, 2 * p, 2 * p + 1, angle)
                    else:
                        values(value, p, pairs + p, angle)
                for v in T.vectorized(2 * pairs):
                    out[v] = T.cast(value[v], dtype)
                # A store whose index is a sum may become four.
                at[0] = row * (accesses * halves) + mine[0]
                for v in T.vectorized(vector):
                    Y[at[0], v] = out[v]
                if not interleaved:
                    at[0] += accesses
                    for v in T.vectorized(vector):
                        Y[at[0], v] = out[vector + v]

    return make_rows


def _grid(groups: Any, across: Any, config: ShortConfig) -> Any:
    """The kernel's frame, whose first axis goes down the rows, or along them."""
    import tilelang.language as T

    axes = (across, groups) if config.along else (groups, across)
    return T.Kernel(*axes, threads=config.columns * config.lines)


def _places(columns: int) -> Any:
    """The macro that sets a thread's line of its block, and its access of a row."""
    import tilelang.language as T

    @T.macro
    def set_places(line, mine, part):
        # Unsigned, since a signed division asks for the sign.
        thread = T.cast(T.get_thread_binding(), "uint32")
        line[0] = T.cast(T.truncdiv(thread, T.uint32(columns)), "int32")
        mine[0] = part * columns + T.cast(T.truncmod(thread, T.uint32(columns)), "int32")

    return set_places


def short_sinusoidal(dtype: str, interleaved: bool, config: ShortConfig) -> Any:
    """The ``PrimFunc`` for short tables of ``dtype``."""
    import tilelang.language as T

    along = config.along
    pairs = config.vector // 2 if interleaved else config.vector

    make_rows = _rows(dtype, interleaved, config)
    set_places = _places(config.columns)

    @T.prim_func
    def entry(
        table: T.int64,
        turns: T.int64,
        seq_len: T.int32,
        accesses: T.int32,
        groups: T.int32,
        across: T.int32,
    ):
        with _grid(groups, across, config) as (first, second):
            F = T.make_tensor_from_addr(turns, (accesses, pairs), "float64")
            frequency = T.alloc_local((pairs,), "float64")
            line = T.alloc_local((1,), "int32")
            mine = T.alloc_local((1,), "int32")
            set_places(line, mine, first if along else second)
            if mine[0] < accesses:
                for p in T.vectorized(pairs):
                    frequency[p] = F[mine[0], p]
                make_rows(
                    table, frequency, line, mine, seq_len, accesses, second if along else first
                )

    return entry.with_attr("global_symbol", "short_sinusoidal")


def factored_sinusoidal(dtype: str, interleaved: bool, config: ShortConfig) -> Any:
    """The ``PrimFunc`` for short tables of ``dtype`` whose pairs' indices have up to 10 bits."""
    import tilelang.language as T

    along, bits = config.along, config.bits
    pairs = config.vector // 2 if interleaved else config.vector
    within = pairs.bit_length() - 1  # bits of an index that tell the pairs of an access apart
    assert pairs == 1 << within, "an access has a power of two of pairs"
    assert 0 < bits <= 10 - within, "an index has 1 to 10 bits"

    make_rows = _rows(dtype, interleaved, config)
    set_places = _places(config.columns)

    @T.macro
    def set_frequencies(frequency, mine, scale, r):
        # Two products, of odd and of even bits, that do not wait for each other.
        product = T.alloc_local((2,), "float64")
        product[0] = scale
        product[1] = T.float64(1.0)
        # Tuples, so that each step is a part of the program and knows its number.
        for b in tuple(range(bits)):
            if T.bitwise_and(mine[0], 1 << b) != 0:
                product[b % 2] = product[b % 2] * r[within + b]
        frequency[0] = product[0] * product[1]
        for b in tuple(range(within)):
            for p in tuple(range(1 << b)):
                frequency[(1 << b) + p] = frequency[p] * r[b]

    @T.prim_func
    def entry(
        table: T.int64,
        seq_len: T.int32,
        accesses: T.int32,
        groups: T.int32,
        across: T.int32,
        scale: T.float64,
        r0: T.float64,
        r1: T.float64,
        r2: T.float64,
        r3: T.float64,
        r4: T.float64,
        r5: T.float64,
        r6: T.float64,
        r7: T.float64,
        r8: T.float64,
        r9: T.float64,
    ):
        with _grid(groups, across, config) as (first, second):
            frequency = T.alloc_local((pairs,), "float64")
            line = T.alloc_local((1,), "int32")
            mine = T.alloc_local((1,), "int32")
            set_places(line, mine, first if along else second)
            # Outside of the guard, which would be told again for each factor.
            factors = [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9]
            set_frequencies(frequency, mine, scale, factors)
            if mine[0] < accesses:
                make_rows(
                    table, frequency, line, mine, seq_len, accesses, second if along else first
                )

    return entry.with_attr("global_symbol", "factored_sinusoidal")
